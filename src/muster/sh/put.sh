# shellcheck shell=sh
# put ID < tar: write files into an agent's folder; agent.json appears whole or not at all.
cd "$mu_home/agents/$1" || die 3 "no agent $1"
rm -rf agent.json.new
if ! tar -xf -; then
	rm -f agent.json.new
	die 1 "cannot write to $mu_home/agents/$1"
fi
if [ -f agent.json.new ]; then
	[ ! -d agent.json ] || [ -h agent.json ] || rm -rf agent.json
	mv -f agent.json.new agent.json
fi
