# shellcheck shell=sh
# home: where this host keeps muster's state.
cd "$mu_home" && pwd -P
