# shellcheck shell=sh
# put ID [RECORD] < tar: write files into an agent's folder; RECORD, which is one of them, becomes agent.json at once, and is on
# the disk when this returns.
cd "$mu_home/agents/$1" 2>/dev/null || die 3 "no agent $1"
if ! tar -xf -; then
	[ -z "${2-}" ] || rm -f "$2"
	die 1 "cannot write to $mu_home/agents/$1"
fi
[ -n "${2-}" ] || exit 0
[ ! -d agent.json ] || [ -h agent.json ] || rm -rf agent.json
mu_sync "$2"
mv -f "$2" agent.json
mu_sync . .. ../../names
