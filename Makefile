# Each target does its own set-up; a machine needs Python 3.11 or newer, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
PIP_INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# Two workers have a processor each: libraries that start threads of their own would wait for each other.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(RUN)/python -m pytest
# Tests of a file share their fixtures in one worker, and those of Spark one session (tests/tiers.py).
TWO := -n 2 --dist loadfile
EVERYDAY := not exhaustive and not audit and not papers and not browser and not postgres
# Compiled code is kept: every worker of the tests, and every command they start, would compile it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-sealed demo-collector test test-quick test-all coverage lint bench papers docs clean
.PHONY: test-papers test-browser test-postgres audit checked wheels

# Five hospitals, their sketches, a model and a report: half a minute.
demo: $(VENV)/demo.done
	rm -rf demo-output
	$(RUN)/privsketch demo --output demo-output

# The same hospitals with the noise of one among them: every part in a process and folder of its own.
demo-sealed: $(VENV)/studies.done
	rm -rf demo-sealed-output
	$(RUN)/privsketch study demo --output demo-sealed-output

# The same hospitals with a service between them, and its pages: an open study, then a sealed one.
demo-collector: $(VENV)/studies.done
	rm -rf demo-collector-output
	$(RUN)/privsketch collector demo --output demo-collector-output

# Everything that must hold, each kind of it, and the packages as users get them. Set-up is work for
# one processor, so two things go on at a time.
test: $(VENV)/dev.done
	$(MAKE) --jobs 2 --output-sync=target checked wheels
	$(PYTEST) $(TWO) -m "$(EVERYDAY)"

# Style and types; tests are compiled once, and not by every worker.
checked: lint
	$(PYTEST) --collect-only -q > /dev/null

wheels: $(VENV)/dev.done
	$(RUN)/python tests/check_wheel.py

# What takes longer: the papers' experiments and benchmarks, pages in a browser, PostgreSQL; every
# pair of ways in to every mechanism, and simulations of the errors that models state.
test-papers: $(VENV)/dev.done
	$(PYTEST) $(TWO) -m "papers and not exhaustive"

test-browser: $(VENV)/dev.done
	$(PYTEST) -m "browser and not exhaustive"

test-postgres: $(VENV)/dev.done
	$(PYTEST) $(TWO) -m "postgres and not exhaustive"

audit: $(VENV)/dev.done
	$(PYTEST) $(TWO) -m "audit and not exhaustive and not spark"

# The same without what takes long: a minute and a half.
test-quick: $(VENV)/dev.done
	$(PYTEST) $(TWO) -m "not slow and not papers"

# All combinations too: the longest.
test-all: $(VENV)/dev.done lint
	$(PYTEST) $(TWO)
	$(RUN)/python tests/check_wheel.py

# Which branches quick tests take.
coverage: $(VENV)/dev.done
	$(PYTEST) $(TWO) -m "not slow" --cov --cov-report=term:skip-covered

lint: $(VENV)/dev.done
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# Accuracy of k-means from a sketch against k-means on the raw records. `python -m benchmarks`
# lists all others.
bench: $(VENV)/dev.done
	$(RUN)/python -m benchmarks accuracy
	$(RUN)/python -m benchmarks accuracy --noise-free

# All experiments of the papers in full, hours; may be stopped, and goes on where it was.
# `python -m papers` lists them.
papers: $(VENV)/dev.done
	for paper in jll bal icassp clp; do \
	  $(RUN)/python -m papers $$paper -o docs/papers/$$paper || exit 1; done
	$(MAKE) docs

# Pages about the papers from docs/papers/text and the results beside them, without running any
# experiment; JSON schemas of what commands answer.
docs: $(VENV)/dev.done
	$(RUN)/python -m papers.harness.pages docs/papers
	$(RUN)/python -m tools.json_schemas

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[plot]"
	touch $@

$(VENV)/studies.done: $(VENV)/bin/python pyproject.toml studies/pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[plot,signing]" -e studies
	touch $@ $(VENV)/demo.done

$(VENV)/dev.done: $(VENV)/bin/python pyproject.toml studies/pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[dev]" -e studies
	touch $@ $(VENV)/demo.done $(VENV)/studies.done

clean:
	rm -rf $(VENV) .venv-peers demo-output demo-sealed-output demo-collector-output papers-output
