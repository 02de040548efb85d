# Every target sets up what it needs first; scripts/setup does that, and returns at once when nothing changed.
SHELL := /bin/sh
PY := .venv/bin/python
HERE := $(CURDIR)
# Where all can be installed, a skipped test is a test that was not run.
NO_SKIP := $(shell [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo MUSTER_NO_SKIP=1)

# The longest tests are not left to one worker at the end.
SPREAD := -n 2 --dist worksteal

# Each script of sh/ runs with lib.sh in front (git-*.sh with git.sh too) and is checked that way, so what it leaves unused of
# them is no finding; those in sh/agent and agents/ stand alone.
define CHECK_SHELL
echo shellcheck; cd src/muster/sh; bad=0; \
shellcheck -s sh ../../../scripts/* ../../../examples/*.sh agent/*.sh ../agents/*.sh ../agents/*/*.sh ../flow/suite/sh/*.sh ../authoring/sh/*.sh || bad=1; shellcheck ../../../.ci/run || bad=1; \
shellcheck -s sh -e SC2034 lib.sh || bad=1; \
for file in *.sh; do \
  case $$file in lib.sh|git.sh) continue ;; git-*) with="lib.sh git.sh" ;; *) with=lib.sh ;; esac; \
  found=$$(cat $$with $$file | shellcheck -s sh -S warning -e SC2034 -f gcc -) || \
    { bad=1; echo "$$file, lines counted with $$with in front:"; echo "$$found"; }; \
done; exit $$bad
endef

.PHONY: help demo test test-all test-fresh check mutants bench docs setup clients clients-newest clean

help: ## show this
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1 \t/p' $(MAKEFILE_LIST)

setup:
	@sh scripts/setup

demo: ## see muster at work
	@sh scripts/setup demo
	@PATH="$(HERE)/.venv/bin:$$PATH" sh examples/demo.sh

# Without a client its tests say so: they are skipped, or fail where a skip counts as a failure.
clients: setup
	@sh scripts/setup-clients || true

# VERSIONS='codex 0.160.0 newest' tries these instead. It needs root: the clients run in a network namespace of their own.
clients-newest: setup ## try the newest version of each coding agent, and print what holds
	@$(PY) -m tests.agents.battery $(or $(VERSIONS),--newest)

test: check clients ## check, then every test that is not slow
	$(NO_SKIP) $(PY) -m pytest -q $(SPREAD) -m 'not slow'

test-all: check clients ## everything, with many more examples
	@sh scripts/setup-clients more || true
	$(NO_SKIP) MUSTER_EXAMPLES=1000 $(PY) -m pytest -q $(SPREAD)

# Before each release, with and without WHO=user. RUN='make demo' tries only that.
test-fresh: ## the demo and the tests on a bare Debian root (needs root and debootstrap)
	@RUN='$(RUN)' sh scripts/fresh $(WHO)

check: setup ## lint, types, shell, layers, pages, tutorial
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict src
	@$(CHECK_SHELL)
	.venv/bin/lint-imports
	$(PY) -m muster.cli.pages --check docs/commands
	.venv/bin/muster tutorial check --tutorial docs/tutorial.sh tests/e2e

# ONLY='muster.evidence*' tries only these. It is slow; run again, it goes on where it was and repeats what changed.
mutants: setup ## change the pure modules in small ways, and print how many of the changes a test notices
	@$(PY) -c 'import mutmut' 2>/dev/null || $(PY) -m pip install -q --disable-pip-version-check mutmut==3.8.1
	$(PY) -m mutmut run $(if $(ONLY),'$(ONLY)')
	@$(PY) -m tests.mutants --survivors

bench: setup ## measure against the floor
	$(PY) -m bench

docs: setup ## make the command pages anew
	$(PY) -m muster.cli.pages docs/commands

clean: ## remove what set-up and tests made
	rm -rf .venv mutants tests/clients/node_modules tests/clients/more/node_modules tests/clients/more/venv .muster .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
