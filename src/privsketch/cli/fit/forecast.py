"""What a run is expected to cost and to give, for its dry run: public facts alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from privsketch.cli.shell.settings import OF_DESIGNS

if TYPE_CHECKING:
    from privsketch.clustering.choose import Choice
    from privsketch.clustering.forecast import RunForecast
    from privsketch.clustering.pipeline.plan import PipelinePlan
    from privsketch.design.recipe import Design
    from privsketch.facts.budget import Budget
    from privsketch.facts.domain import Domain
    from privsketch.facts.schema import Schema


@dataclass(frozen=True)
class Study:
    """The public facts of a run."""

    domain: Domain | Schema
    budget: Budget
    n_clusters: int | str
    max_clusters: int | None
    n_records: float | None
    random_state: int | None
    names: tuple[str, ...] | None
    settings: dict[str, Any]
    loss: str

    @property
    def box(self) -> Domain:
        """Where records lie, encoded ones with a schema."""
        from privsketch.facts.schema import Schema

        return self.domain.box if isinstance(self.domain, Schema) else self.domain

    @property
    def charged(self) -> Budget:
        """The budget, for the unit that the schema protects."""
        from privsketch.facts.schema import Schema

        schema = self.domain
        return schema.charged(self.budget) if isinstance(schema, Schema) else self.budget

    def expected(self, method: str) -> RunForecast | None:
        """Return the forecast of a run, if the method has one."""
        from privsketch.clustering.choose import forecast_run

        k = self.max_clusters or int(self.n_clusters)
        return forecast_run(method, k, self.box, self.charged, self.n_records, self.loss)

    def plan(self, method: str) -> PipelinePlan | None:
        """Return the plan of a pipeline if the number of records is stated."""
        from privsketch.clustering.pipeline.plan import plan_pipeline

        if method != "pipeline" or self.n_records is None:
            return None
        dim, n_rounds = len(self.box.half_widths), self.settings.get("n_rounds")
        return plan_pipeline(int(self.n_clusters), dim, self.charged, self.n_records, n_rounds)

    def design(self) -> Design:
        """Return the design for a sketch of the records."""
        from privsketch.design.plan import plan_design

        choices = {name: self.settings[name] for name in OF_DESIGNS if name in self.settings}
        return plan_design(
            task="kmeans",
            n_components=self.max_clusters or int(self.n_clusters),
            domain=self.domain,
            budget=self.budget,
            n_records=self.n_records,
            random_state=self.random_state,
            columns=self.names,
            **choices,
        )


def sketch_lines(design: Design, n_threads: int | None, said: list[str]) -> list[str]:
    """Return lines about a sketch of a design, without the cautions that were `said`."""
    import privsketch as ps
    from privsketch.design.cautions import describe_design

    told = ps.estimate_cost(design, n_threads=n_threads).describe()
    return [describe_design(design, shown=said), "", told, ""]


def sketch_facts(design: Design, n_threads: int | None) -> dict[str, Any]:
    """Return the same for machines."""
    import privsketch as ps
    from privsketch.cli.shell.facts import design_facts

    planned = design_facts(design)
    return {
        "estimate": asdict(ps.estimate_cost(design, n_threads=n_threads)),
        **{name: planned[name] for name in ("design", "forecast", "noise_std")},
    }


def forecast_text(
    study: Study, choice: Choice, files: Any, n_threads: int | None, said: list[str]
) -> str:
    """Forecast a run from public facts, without the cautions that were `said`."""
    described, plan = study.domain.describe().splitlines(), study.plan(choice.method)
    reason = f", because {choice.reason}" if choice.reason else ""
    lines = [
        f"method      {choice.method}{reason}",
        f"record      {study.domain.dim} columns",
        *(f"{'domain' if not n else '':<11} {line}" for n, line in enumerate(described)),
        f"cost        at most {study.charged.describe()}",
    ]
    if choice.method == "sketch":
        lines += ["", *sketch_lines(study.design(), n_threads, said)]
    elif plan is not None:
        lines.append(f"plan        {plan.describe()}")
    expected = study.expected(choice.method)
    if expected is not None:
        lines.append(f"forecast    {expected.describe()}")
    return "\n".join([*lines, files.looked_at, "nothing was spent"])


def forecast_facts(study: Study, choice: Choice, n_threads: int | None) -> dict[str, Any]:
    """Return the forecast for machines."""
    from privsketch.cli.shell.facts import cost_facts

    plan = study.plan(choice.method)
    facts = {
        "method": choice.method,
        "reason": choice.reason or None,
        "dim": study.domain.dim,
        "cost": cost_facts(study.charged),
    }
    if choice.method == "sketch":
        facts |= sketch_facts(study.design(), n_threads)
    elif plan is not None:
        shares = {name: float(share) for name, share in plan.weights}
        facts["plan"] = {**asdict(plan), "weights": shares}
    expected = study.expected(choice.method)
    return facts if expected is None else {**facts, **asdict(expected)}
