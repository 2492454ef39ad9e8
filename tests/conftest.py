"""What several test files share: which tests are slow, noise left out or noted, small studies."""

import importlib.util
import os
import shutil
import signal
import sys
from collections import Counter

import numpy as np
import pytest

import privsketch as ps
from privsketch.testing import exact_answer, replaced_noise, without_noise

# Tests that are slow, or mostly so, in files that do not say it themselves: every how many cases
# is quick, 0 for none.
SLOW = {
    "cli/test_json.py::test_every_command_answers_by_its_schema": 1,  # one case after the other
    "learning/test_pca.py::test_slow_spectra_do_not_bend_the_components": 0,
    "noise/test_laws.py::test_laplace_cells_of_quadratic_features": 4,
    "comparison/test_comparison.py::test_honest_studies_raise_no_alarm": 0,
    "comparison/test_comparison.py::test_commands_say_it": 0,
    "noise/test_composition.py::test_bounds_hold_where_floats_are_short_of_digits": 3,
    "noise/test_composition.py::test_bounds_hold_for_tiny_pure_releases": 3,
    "ledger/test_tally.py::test_a_search_says_it_once": 0,
    "ledger/test_entries.py::test_what_callbacks_release_has_an_entry_of_its_own": 4,
    "sketching/test_engines.py::test_a_pool_reads_files": 0,
    "cli/test_failures.py::test_an_answer_that_nobody_takes_is_a_failure": 2,
    "cli/test_failures.py::test_answers_are_text_whatever_files_are_called": 0,
    "signing/test_keys.py::test_the_key_file_is_as_documented": 0,
    "ledger/test_store.py::test_schedules_find_results_without_an_entry": 0,
    "cli/test_signed_files.py::test_nobody_needs_the_library_who_signs_nothing": 0,
    "learning/test_pca.py::test_the_number_of_components_is_found": 3,
    "features/test_features.py::test_gradient_ascent_never_exceeds_the_claimed_sensitivity": 2,
    "ledger/test_entries.py::test_a_release_is_entered_with_its_receipt": 5,
    "ledger/test_entries.py::test_nothing_is_drawn_before_it_is_reserved": 6,
    "ledger/test_entries.py::test_the_environment_names_a_ledger_for_everything": 6,
    "ledger/test_entries.py::test_engines_note_the_same_marks": 3,
    "ledger/test_entries.py::test_a_killed_process_has_spent": 0,
    "noise/test_composition.py::test_figures_are_those_of_dp_accounting": 9,
    "comparison/test_comparison.py::test_a_unit_or_a_shift_is_named_with_its_columns": 6,
    "comparison/test_comparison.py::test_designs_of_every_kind_compare": 6,
    "comparison/test_comparison.py::test_few_records_and_much_noise_raise_nothing": 2,
    "comparison/test_comparison.py::test_many_honest_studies_raise_no_alarm": 0,
    "comparison/test_comparison.py::test_pounds_and_inches_of_five_sites": 3,
    "comparison/test_comparison.py::test_two_sketches_tell_no_odd_one": 0,
    "sketching/test_impossible.py::test_honest_sketches_are_possible": 4,
    "privacy/test_neighbouring_tables.py::test_a_quote_that_never_ends_is_refused_elsewhere_too": 0,
    "privacy/test_neighbouring_tables.py::test_csv_as_it_is_written_elsewhere": 0,
    "tables/test_encoding.py::test_all_readers_give_the_records_of_the_oracle": 0,
    "cli/test_own_table.py::test_a_study_of_several_holders": 0,
    "estimators/test_tables.py::test_centers_are_in_units_where_all_columns_are_numbers": 3,
    "privacy/test_neighbouring_tables.py::test_excel": 0,
    "privacy/test_neighbouring_tables.py::test_folders_and_patterns": 0,
    "clustering/test_choose.py::test_the_same_records_ask_the_same_questions": 4,
    "clustering/test_medians.py::test_one_receipt_with_its_parts": 3,
    "kernels/test_quantiser.py::test_numbers_of_every_type": 4,
    "kernels/test_self_checks.py::test_one_wrong_phase_of_65536": 0,
    "learning/test_mixture.py::test_errors_of_the_means_are_as_large_as_stated": 0,
    "noise/test_noise.py::test_cube_scale_is_accepted_and_wrong_ones_are_rejected": 0,
    "sketching/test_estimate.py::test_every_design_has_a_cost": 4,
    "benchmarks/test_compare.py::test_receipts_of_rounds_add_up": 5,
    "cli/test_cli.py::test_the_demo_tells_the_whole_story": 0,
    "cli/test_cli_cautions.py::test_commands_say_it_once_on_stderr": 3,
    "clustering/test_em.py::test_the_worst_record_costs_the_budget_and_no_more": 4,
    "clustering/test_points.py::test_odd_tables_give_a_model_in_the_domain_without_a_word": 4,
    "clustering/test_run.py::test_a_number_is_what_it_is_called": 4,
    "design/test_cautions.py::test_fits_warn_once": 4,
    "estimators/test_projection_estimator.py::"
    "test_no_neighbour_moves_the_integers_by_more_than_the_noise_hides": 4,
    "kernels/test_hadamard.py::"
    "test_means_of_features_are_as_close_to_the_kernel_as_with_dense_frequencies": 3,
    "kernels/test_processors.py::test_kernels_agree_on_every_processor_that_runs_here": 3,
    "kernels/test_self_checks.py::test_one_record_of_two_left_out": 2,
    "privacy/test_neighbouring_tables.py::test_an_array_that_is_filled_again_and_again": 3,
    "privacy/test_neighbouring_tables.py::test_no_cell_stops_an_estimator": 4,
    "sketching/test_engines.py::test_a_worker_killed_from_outside": 0,
    "survey/test_check.py::test_a_look_takes_cells_of_text_files_as_a_release_does": 4,
    "tables/test_persons.py::test_the_rows_of_the_oracle_count": 3,
    "clustering/test_edge.py::test_a_box_that_cuts_is_noticed": 12,
    "clustering/test_edge.py::test_few_records_raise_no_concern_that_noise_could_raise": 0,
    "clustering/test_edge.py::test_noise_alone_keeps_to_its_chance": 0,
    "clustering/test_edge.py::test_records_inside_raise_no_concern": 12,
    "clustering/test_edge.py::test_runs_with_a_schema_know_which_coordinates_are_cut": 3,
    "clustering/test_edge.py::test_a_ball_that_cuts_is_noticed": 0,
    "clustering/test_edge.py::test_values_on_the_bounds_are_not_beyond_them": 0,
    "models/test_center_model.py::test_a_number_of_records_is_called_what_it_is": 0,
    "privacy/test_neighbouring_persons.py::test_one_person_is_replaced": 19,
    "privacy/test_neighbouring_persons.py::test_one_person_moves_one_record": 13,
    "privacy/test_neighbouring_persons.py::test_several_records_of_a_person": 17,
    "report/test_report.py::test_a_report_of_every_shape_can_be_made": 3,
    "report/test_report.py::test_column_names_are_not_formulas": 3,
    "report/test_units.py::test_date_and_versions_are_told": 2,
    "report/test_units.py::test_names_values_and_units_are_escaped": 2,
    "tables/test_files.py::test_results_are_not_written_into_a_folder_of_records": 3,
    "benchmarks/test_compare.py::test_what_has_its_row_is_not_run_again": 0,
    "estimators/test_estimators.py::test_bad_tables_are_refused_without_being_quoted": 4,
    "estimators/test_estimators.py::test_empty_clusters_are_not_called_precise": 0,
    "estimators/test_estimators.py::test_finds_separated_clusters": 3,
    "estimators/test_estimators.py::test_scikit_learn_contract": 22,
    "estimators/test_mixture_estimator.py::test_attributes_work_in_scikit_learn": 4,
    "estimators/test_mixture_estimator.py::test_close_to_the_plain_fit": 5,
    "estimators/test_mixture_estimator.py::test_everything_fitted_is_a_function_of_the_release": 0,
    "estimators/test_mixture_estimator.py::test_scikit_learn_contract": 11,
    "estimators/test_pca_estimator.py::test_scikit_learn_contract": 4,
    "estimators/test_projection_estimator.py::test_pipelines_with_classifiers": 3,
    "kernels/test_hadamard.py::test_compiled_sums_are_those_of_the_dense_matrix": 6,
    "kernels/test_hadamard.py::test_every_width_of_vectors_gives_the_same_sums": 12,
    "kernels/test_hadamard.py::test_only_features_that_are_kept_are_added": 0,
    "kernels/test_self_checks.py::test_a_coefficient_off_by_its_last_digit": 6,
    "kernels/test_self_checks.py::test_a_wrong_coefficient_of_the_decoder": 6,
    "kernels/test_self_checks.py::test_kernels_agree_with_their_definitions": 3,
    "benchmarks/test_compare.py::test_every_method_of_the_package_joins_in": 0,
    "benchmarks/test_compare.py::test_a_method_that_refuses_a_cell_leaves_the_others": 0,
    "sketching/test_engines.py::test_names_of_tasks_are_random": 0,
    "report/test_report.py::test_a_mixture_has_a_report_too": 0,
    "papers/test_cells.py::test_a_run_goes_on_where_it_was": 0,
    "papers/test_cells.py::test_a_run_that_is_ended_leaves_no_process_and_keeps_what_is_done": 0,
    "papers/test_cells.py::test_cells_have_one_thread": 0,
    "papers/test_cells.py::test_our_errors_arrive_as_they_are_and_other_parts_are_kept": 0,
    "papers/test_cells.py::test_rows_come_in_the_order_of_the_cells_and_are_kept": 0,
    "papers/test_clp.py::test_releases_have_the_ratio_that_was_asked_for": 3,
    "papers/test_clp.py::test_tiny_targets": 0,
    "papers/test_icassp.py::test_reference_is_k_means": 0,
    "papers/test_icassp.py::test_tiny_run_of_figure_2": 0,
    "papers/test_icassp.py::test_tiny_run_of_figure_3": 0,
    "papers/test_targets.py::test_a_target_from_the_shell": 0,
    "papers/test_targets.py::test_a_target_writes_a_table_words_and_a_picture": 0,
    "papers/test_targets.py::test_figure_4_follows_its_closed_form": 0,
    "papers/test_targets.py::test_projected_records_have_variance_d_over_k": 0,
    "papers/test_targets.py::test_rows_read_from_a_file_say_the_same": 0,
    "comparison/test_comparison.py::test_a_cluster_that_one_source_has_alone": 0,
    "comparison/test_comparison.py::test_own_shares_are_no_alarm_and_alike_sources_are_alike": 0,
    "benchmarks/test_regret.py::test_one_small_cell_is_run_by_every_method": 0,
    "papers/test_pages.py::test_a_page_has_what_lies_beside_its_text": 0,
    "report/test_report.py::test_a_malicious_source_is_escaped": 0,
    "cli/test_cli.py::test_the_whole_story": 0,
    "comparison/test_comparison.py::"
    "test_of_units_that_do_the_same_the_one_is_named_that_changes_least": 0,
    "noise/test_account.py::test_a_share_implies_what_its_receipt_claims": 0,
    "estimators/test_estimators.py::test_missing_values_in_fit_and_predict": 0,
    "cli/test_stopping.py::test_a_job_that_ignores_interrupts_goes_on": 0,
    "learning/test_learning.py::test_close_to_k_means_on_the_records": 0,
    "clustering/test_pipeline.py::test_clusters_in_many_columns_are_found": 0,
    "estimators/test_estimators.py::test_names_of_columns_reach_the_model": 0,
    "clustering/test_cells_method.py::test_a_domain_that_cuts_is_a_concern": 0,
    "cli/test_own_table.py::test_results_are_in_the_units_of_the_table": 0,
    "cli/test_cli.py::test_files_of_value_are_not_replaced_unawares": 0,
    "estimators/test_tables.py::test_k_means_of_a_table": 0,
    "clustering/test_cells_method.py::test_schemas_and_persons_are_respected": 0,
    "cli/test_ledger_options.py::"
    "test_the_same_records_under_another_name_are_told_to_the_holder_alone": 0,
    "design/test_utility.py::test_lemma_26_against_real_releases": 0,
    "cli/test_ledger_options.py::test_the_environment_names_the_ledger": 0,
    "papers/test_targets.py::test_distances_are_unbiased_with_the_corrected_variance": 0,
    "comparison/test_comparison.py::test_a_picture_can_be_drawn": 0,
}
# Of other tests with many cases, quick runs take every n-th: (cases from which on, n).
SAMPLED = ((20, 10), (4, 4))
FEW = 2000  # of all tests: fewer are some that were asked for


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Mark cases of tests that are mostly slow, all but every n-th."""
    seen = Counter()
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    for item in items:
        if item.get_closest_marker("spark"):
            continue
        test = item.nodeid.partition("[")[0]
        marker = item.get_closest_marker("mostly_slow")
        every = marker.kwargs["quick_every"] if marker else SLOW.get(test.removeprefix("tests/"))
        if every is None and len(items) > FEW:  # else somebody asks for these
            every = next((n for least, n in SAMPLED if cases[test] >= least), None)
        if every is not None:
            if every == 0 or seen[test] % every:
                item.add_marker("slow")
            seen[test] += 1


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
