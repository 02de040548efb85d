# shellcheck shell=sh
# put ID < tar: write files into an agent's folder; agent.json appears whole or not at all.
cd "$mu_home/agents/$1" || die 3 "no agent $1"
rm -f agent.json.new
tar -xf - || die 1 "cannot write to $mu_home/agents/$1"
[ ! -f agent.json.new ] || mv -f agent.json.new agent.json
