# shellcheck shell=sh
# home: print the state folder of this host.
cd "$mu_home" && pwd -P
