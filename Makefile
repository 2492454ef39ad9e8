# Each target does its own set-up; a machine needs Python 3.11 or newer, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
PIP_INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench bench-speed bench-memory clean

demo: $(VENV)/demo.done
	$(RUN)/privsketch demo --output demo-output

test: $(VENV)/dev.done lint
	$(RUN)/python -m pytest -n 2

lint: $(VENV)/dev.done
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# Accuracy of private k-means against k-means on the raw records: one table.
bench: $(VENV)/dev.done
	$(RUN)/python benchmarks/accuracy.py

# Nanoseconds per feature against NumPy in the same run.
bench-speed: $(VENV)/dev.done
	$(RUN)/python benchmarks/speed.py

# Peak memory while sketching a 1.6 GB Parquet file.
bench-memory: $(VENV)/dev.done
	$(RUN)/python benchmarks/memory.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[plot]"
	touch $@

$(VENV)/dev.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[dev]"
	touch $@ $(VENV)/demo.done

clean:
	rm -rf $(VENV) demo-output
