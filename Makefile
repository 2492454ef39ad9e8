# Each target does its own set-up; a machine needs Python 3.11 or newer, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
PIP_INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench bench-decoders bench-trust bench-mixtures bench-pca bench-forecast bench-utility bench-speed bench-masks bench-memory bench-engines bench-release bench-projection bench-distances bench-clustering bench-sparse reproduce-jll reproduce-bal clean

demo: $(VENV)/demo.done
	$(RUN)/privsketch demo --output demo-output

test: $(VENV)/dev.done lint
	$(RUN)/python -m pytest -n 2

lint: $(VENV)/dev.done
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

# Accuracy of k-means from a sketch against k-means on the raw records, private and without noise.
bench: $(VENV)/dev.done
	$(RUN)/python benchmarks/accuracy.py
	$(RUN)/python benchmarks/accuracy.py --noise-free

# Time to learn against clusters, columns and features.
bench-decoders: $(VENV)/dev.done
	$(RUN)/python benchmarks/decoders.py

# Coverage of intervals, and the number of clusters taken from sketches.
bench-trust: $(VENV)/dev.done
	$(RUN)/python benchmarks/trust.py

# Log-likelihood of Gaussian mixtures from a sketch.
bench-mixtures: $(VENV)/dev.done
	$(RUN)/python benchmarks/mixtures.py

# Variance that private principal components lose.
bench-pca: $(VENV)/dev.done
	$(RUN)/python benchmarks/pca.py

# The forecast against measured errors.
bench-forecast: $(VENV)/dev.done
	$(RUN)/python benchmarks/forecast.py

# Expected and measured noise-to-signal ratio of releases: every map, kind of masks and noise.
bench-utility: $(VENV)/dev.done
	$(RUN)/python benchmarks/noise_to_signal.py

# Nanoseconds per feature against NumPy in the same run.
bench-speed: $(VENV)/dev.done
	$(RUN)/python benchmarks/speed.py

# Time with masks of every kind against none.
bench-masks: $(VENV)/dev.done
	$(RUN)/python benchmarks/masks.py

# Peak memory while sketching a 1.6 GB Parquet file.
bench-memory: $(VENV)/dev.done
	$(RUN)/python benchmarks/memory.py

# Threads, processes and a Dask cluster that loses a worker: times, and the same sums.
bench-engines: $(VENV)/dev.done
	$(RUN)/python benchmarks/engines.py

# Released rows: speed against NumPy, and peak memory on 10 million records (9 GB of free disk).
bench-release: $(VENV)/dev.done
	$(RUN)/python benchmarks/release.py

# Noise of a released number by each calibration, half a minute.
bench-projection: $(VENV)/dev.done
	$(RUN)/python benchmarks/projection_noise.py

# Methods of private k-means side by side, an hour; time and memory of the pipeline.
bench-clustering: $(VENV)/dev.done
	$(RUN)/python benchmarks/clustering.py
	$(RUN)/python benchmarks/clustering.py --large

# Sparse records of 10,000 columns: cost and memory.
bench-sparse: $(VENV)/dev.done
	$(RUN)/python benchmarks/sparse.py
	$(RUN)/python benchmarks/sparse.py --memory

# Distances, intervals and clusters from released rows, ten minutes.
bench-distances: $(VENV)/dev.done
	$(RUN)/python benchmarks/distances.py

# Figures and Table 1 of JLL beside the printed numbers, a quarter of an hour.
reproduce-jll: $(VENV)/dev.done
	$(RUN)/privsketch reproduce jll-figure1 jll-figure2 jll-figure3 jll-figure4 jll-table1 -o docs/papers/jll

# Figure 2 of BAL: objectives against k and epsilon, three quarters of an hour.
reproduce-bal: $(VENV)/dev.done
	$(RUN)/privsketch reproduce bal-synthetic bal-images bal-epsilon -o docs/papers/bal

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
