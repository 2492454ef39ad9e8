"""What several test files share: which tests are slow, noise left out or noted, small studies."""

import importlib.util
import os
import shutil
import signal
import sys
from collections import defaultdict
from itertools import combinations

import hypothesis
import numpy as np
import pytest

import privsketch as ps
from privsketch.testing.replay import exact_answer, replaced_noise, without_noise
from tests.chance import fixed_noise

# What people set for themselves changes no test: those of terminals say what they need, and no
# command of a test writes to somebody's ledger. `PRIVSKETCH_SCREENSHOTS` is for tests.
OF_TERMINALS = {
    *("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE"),
}
for name in [*os.environ]:
    ours = name.startswith("PRIVSKETCH_") and name != "PRIVSKETCH_SCREENSHOTS"
    if ours or name in OF_TERMINALS:
        del os.environ[name]
os.environ["TERM"] = "dumb"

# Hypothesis tries the same examples in every run, and has all the time that it takes.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("same")

# Tests of which no case is quick, in files that do not say it themselves.
SLOW = {
    "cli/test_cluster.py::test_one_command_gives_a_model_and_a_report",
    "clustering/test_choose.py::test_nothing_but_the_noise_knows_the_number_of_records",
    "clustering/test_choose.py::test_the_receipt_has_the_budget",
    "noise/sharing/test_sharing.py::test_noise_fits_at_every_turnout",
    "sketching/test_engines.py::test_tables_that_are_already_on_the_cluster",
    "service/test_requests.py::test_who_does_not_read_is_hung_up_on",
    "benchmarks/test_compare.py::test_a_method_that_refuses_a_cell_leaves_the_others",
    "benchmarks/test_compare.py::test_every_method_of_the_package_joins_in",
    "benchmarks/test_compare.py::test_what_has_its_row_is_not_run_again",
    "benchmarks/test_regret.py::test_one_small_cell_is_run_by_every_method",
    "cli/test_cli.py::test_files_of_value_are_not_replaced_unawares",
    "cli/test_cli.py::test_the_demo_tells_the_whole_story",
    "cli/test_cli.py::test_the_same_sketch_gives_clusters_and_a_mixture",
    "cli/test_cli.py::test_the_whole_story",
    "cli/test_cluster.py::test_the_number_of_clusters_is_taken_from_a_sketch",
    "cli/test_failures.py::test_a_failure_that_nobody_hears_is_still_one",
    "cli/test_failures.py::test_an_answer_that_nobody_takes_is_a_failure",
    "cli/test_failures.py::test_answers_are_text_whatever_files_are_called",
    "cli/test_ledger_options.py::test_the_environment_names_the_ledger",
    "cli/test_ledger_options.py::"
    "test_the_same_records_under_another_name_are_told_to_the_holder_alone",
    "cli/test_own_table.py::test_a_study_of_several_holders",
    "cli/test_own_table.py::test_results_are_in_the_units_of_the_table",
    "cli/test_signed_files.py::test_nobody_needs_the_library_who_signs_nothing",
    "cli/test_stopping.py::test_a_job_that_ignores_interrupts_goes_on",
    "clustering/test_cells_method.py::test_a_domain_that_cuts_is_a_concern",
    "clustering/test_cells_method.py::test_schemas_and_persons_are_respected",
    "clustering/test_choose.py::test_clear_clusters_are_found",
    "clustering/test_choose.py::test_two_fits_differ",
    "clustering/test_edge.py::test_a_ball_that_cuts_is_noticed",
    "clustering/test_edge.py::test_few_records_raise_no_concern_that_noise_could_raise",
    "clustering/test_edge.py::test_noise_alone_keeps_to_its_chance",
    "clustering/test_edge.py::test_values_on_the_bounds_are_not_beyond_them",
    "clustering/test_pipeline.py::test_clusters_in_many_columns_are_found",
    "comparison/test_comparison.py::test_a_cluster_that_one_source_has_alone",
    "comparison/test_comparison.py::test_a_picture_can_be_drawn",
    "comparison/test_comparison.py::test_a_unit_or_a_shift_is_named_with_its_columns",
    "comparison/test_comparison.py::test_commands_say_it",
    "comparison/test_comparison.py::test_designs_of_every_kind_compare",
    "comparison/test_comparison.py::test_honest_studies_raise_no_alarm",
    "comparison/test_comparison.py::test_many_honest_studies_raise_no_alarm",
    "comparison/test_comparison.py::"
    "test_of_units_that_do_the_same_the_one_is_named_that_changes_least",
    "comparison/test_comparison.py::test_own_shares_are_no_alarm_and_alike_sources_are_alike",
    "comparison/test_comparison.py::test_pounds_and_inches_of_five_sites",
    "comparison/test_comparison.py::test_two_sketches_tell_no_odd_one",
    "design/test_utility.py::test_lemma_26_against_real_releases",
    "estimators/test_estimators.py::test_empty_clusters_are_not_called_precise",
    "estimators/test_estimators.py::test_finds_separated_clusters",
    "estimators/test_estimators.py::test_missing_values_in_fit_and_predict",
    "estimators/test_estimators.py::test_names_of_columns_reach_the_model",
    "estimators/test_mixture_estimator.py::test_everything_fitted_is_a_function_of_the_release",
    "estimators/test_tables.py::test_k_means_of_a_table",
    "kernels/test_hadamard.py::test_only_features_that_are_kept_are_added",
    "kernels/test_processors.py::test_kernels_agree_on_every_processor_that_runs_here",
    "kernels/test_self_checks.py::test_kernels_agree_with_their_definitions",
    "kernels/test_self_checks.py::test_one_wrong_phase_of_65536",
    "kernels/test_self_checks.py::test_sums_that_are_widened_too_late",
    "learning/test_learning.py::test_close_to_k_means_on_the_records",
    "learning/test_learning.py::test_records_in_other_units_than_the_domain_are_noticed",
    "learning/test_mixture.py::test_errors_of_the_means_are_as_large_as_stated",
    "learning/test_pca.py::test_slow_spectra_do_not_bend_the_components",
    "learning/test_ratio.py::test_it_is_told_in_words_and_on_the_page",
    "learning/test_ratio.py::test_the_interval_grows_with_the_noise",
    "ledger/test_entries.py::test_a_killed_process_has_spent",
    "ledger/test_store.py::test_schedules_find_results_without_an_entry",
    "ledger/test_tally.py::test_a_search_says_it_once",
    "models/test_center_model.py::test_a_number_of_records_is_called_what_it_is",
    "noise/sharing/test_sharing.py::test_a_total_has_the_noise_of_one_release_over_the_honest",
    "noise/sharing/test_sharing.py::test_tellers_add_cubes",
    "noise/test_account.py::test_a_share_implies_what_its_receipt_claims",
    "noise/test_noise.py::test_cube_scale_is_accepted_and_wrong_ones_are_rejected",
    "papers/test_cells.py::test_a_run_goes_on_where_it_was",
    "papers/test_cells.py::test_a_run_that_is_ended_leaves_no_process_and_keeps_what_is_done",
    "papers/test_cells.py::test_cells_have_one_thread",
    "papers/test_cells.py::test_our_errors_arrive_as_they_are_and_other_parts_are_kept",
    "papers/test_cells.py::test_rows_come_in_the_order_of_the_cells_and_are_kept",
    "papers/test_clp.py::test_releases_have_the_ratio_that_was_asked_for",
    "papers/test_clp.py::test_tiny_targets",
    "papers/test_icassp.py::test_reference_is_k_means",
    "papers/test_icassp.py::test_tiny_run_of_figure_2",
    "papers/test_icassp.py::test_tiny_run_of_figure_3",
    "papers/test_pages.py::test_a_page_has_what_lies_beside_its_text",
    "papers/test_pages.py::test_pages_and_words_follow_the_rows",
    "papers/test_targets.py::test_a_target_from_the_shell",
    "papers/test_targets.py::test_a_target_writes_a_table_words_and_a_picture",
    "papers/test_targets.py::test_distances_are_unbiased_with_the_corrected_variance",
    "papers/test_targets.py::test_figure_4_follows_its_closed_form",
    "papers/test_targets.py::test_projected_records_have_variance_d_over_k",
    "papers/test_targets.py::test_rows_read_from_a_file_say_the_same",
    "privacy/test_neighbouring_tables.py::test_a_quote_that_never_ends_is_refused_elsewhere_too",
    "privacy/test_neighbouring_tables.py::test_csv_as_it_is_written_elsewhere",
    "privacy/test_neighbouring_tables.py::test_excel",
    "privacy/test_neighbouring_tables.py::test_folders_and_patterns",
    "report/test_report.py::test_a_malicious_source_is_escaped",
    "report/test_report.py::test_a_mixture_has_a_report_too",
    "report/test_report.py::test_under_replace_the_page_says_so",
    "report/test_units.py::test_unit_relation_budget_and_missing_values_are_told",
    "signing/test_keys.py::test_the_key_file_is_as_documented",
    "sketching/test_engines.py::test_a_pool_reads_files",
    "sketching/test_engines.py::test_a_worker_killed_from_outside",
    "sketching/test_engines.py::test_names_of_tasks_are_random",
    "tables/test_encoding.py::test_all_readers_give_the_records_of_the_oracle",
}
# What other tests have as well, of cases that take long.
EXHAUSTIVE = {
    "cli/test_json.py::test_every_command_answers_by_its_schema[demo-2]",
    "service/test_browser.py::"
    "test_every_page_is_good_on_a_desk_on_a_phone_and_in_the_dark[postgresql]",
    "service/test_lessons.py::test_models_of_the_total_are_learned_and_shown[postgresql]",
    "service/test_openapi.py::test_the_service_is_as_it_describes_itself[postgresql-north]",
    "service/test_openapi.py::test_the_service_is_as_it_describes_itself[postgresql-olga]",
}
# Tests whose cases build on each other: all of them quick, or none.
IN_ORDER = {"cli/test_json.py::test_every_command_answers_by_its_schema"}
EVERY = 10  # of the cases of other tests that many give one quick one
FEW = 2000  # of all tests: fewer are some that were asked for


# What takes long and has a target of its own: make test-papers, test-browser, test-postgres.
TARGETS = {
    "papers": lambda item: item.nodeid.startswith(("tests/papers/", "tests/benchmarks/")),
    "browser": lambda item: item.nodeid.startswith(
        ("studies/tests/collector/test_browser.py", "studies/tests/collector/test_collector_demo.py")
    ),
    "postgres": lambda item: "postgresql" in item.name,
}


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Give every case its tier.

    Of each test some cases have every value of every parameter at least once: of these every n-th
    is quick, the others are `slow`; all other combinations are `exhaustive`, and slow as well.
    """
    tests = defaultdict(list)
    for item in items:
        for target, belongs in TARGETS.items():
            if belongs(item):
                item.add_marker(target)
        known = item.nodeid.removeprefix("tests/") in EXHAUSTIVE
        if known or item.get_closest_marker("exhaustive"):
            item.add_marker("exhaustive")
            item.add_marker("slow")
        else:
            tests[item.nodeid.partition("[")[0]].append(item)
    for test, cases in tests.items():
        name = test.removeprefix("tests/")
        marker = cases[0].get_closest_marker("mostly_slow")
        said = marker or name in SLOW or cases[0].get_closest_marker("slow")
        if name in IN_ORDER or (len(items) <= FEW and not said):
            continue
        chosen = covering(cases)
        every = max(EVERY, marker.kwargs["quick_every"] if marker else 0)
        quick = chosen[::every] if name not in SLOW else []
        for case in cases:
            if case not in quick:
                case.add_marker("slow")
            if case not in chosen:
                case.add_marker("exhaustive")


def covering(cases):
    """Few cases of a test with all values of all parameters: each time the one with most new."""
    left = {case: kinds(case) for case in cases}
    chosen = []
    while not chosen or any(left.values()):
        best = max(left, key=lambda case: len(left[case]))  # the first of them
        new = left.pop(best)
        chosen.append(best)
        left = {case: values - new for case, values in left.items()}
    return chosen


def kinds(case):
    """Names and values of a case's parameters; objects are themselves, not what they look like.

    Where records could leak, pairs of them too.
    """
    params = case.callspec.params if hasattr(case, "callspec") else {}
    plain = (str, bytes, bool, int, float, type(None))
    found = {
        (name, type(value).__name__, repr(value) if isinstance(value, plain) else id(value))
        for name, value in params.items()
    }
    if case.nodeid.startswith("tests/privacy/"):
        return found | set(combinations(sorted(found, key=repr), 2))
    return found


def pytest_itemcollected(item):
    """Tests of Spark are slow and marked: `make test` has one process for all of them."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("slow")
        item.add_marker("spark")


@pytest.fixture(autouse=True)
def _new_tally(monkeypatch):
    """Tests of one process fit the same records; what they cost together is nobody's business."""
    if "privsketch.ledger.entry" in sys.modules:
        from privsketch.ledger.tally import Tally

        monkeypatch.setattr("privsketch.ledger.entry.TALLY", Tally())


@pytest.fixture
def no_noise():
    """Releases made in this test are the exact integers, marked INSECURE in their receipts."""
    with without_noise():
        yield


@pytest.fixture(name="fixed_noise")
def _fixed_noise():
    """Noise and masks are the same in every run of this test."""
    with fixed_noise():
        yield


@pytest.fixture
def spent():
    """A list that grows by one law for every noise call; it stays empty if nothing was spent."""
    laws = []

    def record(values, law):
        laws.append(law)
        return exact_answer(values, law), law.scale

    with replaced_noise(record):
        yield laws


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of Spark's, two workers that try four times; `spark_log` is all that it says."""
    if shutil.which("java") is None or importlib.util.find_spec("pyspark") is None:
        pytest.skip("Spark needs Java and PySpark")
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2,4]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.privsketch.log": str(folder / "log"),
    }.items():
        builder = builder.config(name, value)
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYTHONPATH")}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers find what this process does, the tests' own functions included.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    handler, error = signal.getsignal(signal.SIGINT), os.dup(2)
    with (folder / "log").open("wb") as log:
        os.dup2(log.fileno(), 2)  # of Java and the workers from now on
    try:
        session = builder.getOrCreate()
    finally:
        os.dup2(error, 2)
        os.close(error)
        signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def few_bits(monkeypatch):
    """Coordinates of two bits and a sign, integers from -3 to 3, for methods that read records."""
    monkeypatch.setattr("privsketch.clustering.run._MAX_BITS", 2)


@pytest.fixture(scope="session")
def make_design():
    """A function that plans a small study; keyword arguments as in Design.plan, plus dim."""

    def make(*, dim=3, epsilon=1.0, delta=1e-6, neighbours="add-remove", **overrides):
        choices = {
            "n_components": 2,
            "domain": ps.Box(-4, 4, dim=dim),
            "n_records": 1000,
            "random_state": 7,
            **overrides,
        }
        return ps.Design.plan(budget=ps.Budget(epsilon, delta, neighbours), **choices)

    return make


@pytest.fixture(scope="session")
def make_records():
    """A function that gives synthetic records, (n, dim) float64 with float32 values."""

    def make(n_records=1000, dim=3, seed=0):
        rng = np.random.default_rng(seed)
        # Some lie outside the domain, and every value has an exact 32-bit form.
        return rng.normal(scale=1.5, size=(n_records, dim)).astype(np.float32).astype(np.float64)

    return make
