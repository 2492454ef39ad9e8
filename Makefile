# Each target does its own set-up; a machine needs Python 3.11 or newer, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
PIP_INSTALL := $(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench bench-decoders bench-trust bench-mixtures bench-pca bench-forecast bench-utility bench-speed bench-masks bench-memory bench-engines bench-release bench-projection bench-distances bench-compare bench-sparse bench-interruptions reproduce reproduce-quick reproduce-jll reproduce-bal reproduce-icassp reproduce-clp pages clean

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

# Our methods, baselines and peers side by side, an hour. Peers have an environment of their own:
# diffprivlib 0.6.6 needs an older scikit-learn. Where it cannot be made they are left out.
bench-compare: $(VENV)/dev.done
	(test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers) \
	  && echo '*' > .venv-peers/.gitignore \
	  && .venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt \
	  || echo "no environment for peers: they are left out"
	$(RUN)/python benchmarks/compare.py
	$(RUN)/python benchmarks/compare.py --large

# Sparse records of 10,000 columns: cost and memory.
bench-sparse: $(VENV)/dev.done
	$(RUN)/python benchmarks/sparse.py
	$(RUN)/python benchmarks/sparse.py --memory

# Interrupts of commands at random moments: files left behind, and what is said. Three quarters of an hour.
bench-interruptions: $(VENV)/dev.done
	$(RUN)/python benchmarks/interruptions.py

# Distances, intervals and clusters from released rows, ten minutes.
bench-distances: $(VENV)/dev.done
	$(RUN)/python benchmarks/distances.py

# All targets with less of everything, in twenty minutes at most. Runs of targets may be stopped:
# they go on where they were.
reproduce-quick: $(VENV)/dev.done
	$(RUN)/privsketch reproduce all --quick -o reproduced-quick

# All targets in full, and the pages about them.
reproduce: reproduce-jll reproduce-bal reproduce-icassp reproduce-clp
	$(MAKE) pages

# Figures and Table 1 of JLL beside the printed numbers, five minutes.
reproduce-jll: $(VENV)/dev.done
	$(RUN)/privsketch reproduce jll -o docs/papers/jll

# Figure 2 of BAL: objectives against k and epsilon, half an hour.
reproduce-bal: $(VENV)/dev.done
	$(RUN)/privsketch reproduce bal -o docs/papers/bal

# Figures 2 and 3 of ICASSP.
reproduce-icassp: $(VENV)/dev.done
	$(RUN)/privsketch reproduce icassp -o docs/papers/icassp

# Figures 4 to 8 of CLP.
reproduce-clp: $(VENV)/dev.done
	$(RUN)/privsketch reproduce clp -o docs/papers/clp

# Pages about the papers from docs/papers/text and the results beside them; nothing is run.
pages: $(VENV)/dev.done
	$(RUN)/python -m privsketch.reproduce.pages docs/papers

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[plot]"
	touch $@

$(VENV)/dev.done: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[dev]"
	touch $@ $(VENV)/demo.done

clean:
	rm -rf $(VENV) .venv-peers demo-output reproduced-quick
