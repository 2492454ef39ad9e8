"""Everything that the OpenAPI description says, tried out by schemathesis."""

import subprocess
import sys

import pytest

from privsketch_studies.collector import verify_store
from studies.tests.server import World, serving, sketch_of

pytest.importorskip("schemathesis")
# A schema cannot say which bytes are a sketch or a design, so that valid ones are refused.
CHECKS = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]


@pytest.mark.slow
@pytest.mark.parametrize("who", ["olga", "north"])
def test_the_service_is_as_it_describes_itself(place, who, tmp_path):
    """Made-up requests, valid and not: all answers are among those that are described."""
    world = World(place)
    assert world.push("north", sketch_of("north").to_bytes()).status_code == 201
    with serving(place) as address:
        token = f"Authorization: Bearer {world.tokens[who]}"
        options = ["--max-examples", "15", "--seed", "1", "--no-color"]
        result = subprocess.run(
            [
                sys.executable,
                "-m",
                "schemathesis.cli",
                "run",
                f"{address}/api/v1/openapi.json",
                "-H",
                token,
                *options,
                *CHECKS,
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    assert result.returncode == 0, result.stdout
    assert "19 selected / 19 total" in result.stdout
    verify_store(world.store)
    world.store.close()
