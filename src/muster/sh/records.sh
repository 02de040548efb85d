# shellcheck shell=sh
# records ID… < tar: replace the records of several agents; the archive has one called ID for each. Each appears whole or not at
# all, and its content is on the disk before it does. Prints a line for each that was not written: `ID missing` or `ID failed WHY`;
# then it ends with 4.
mu_agents
mu_tmp=$mu_home/tmp/records.$$ # beside the agents, so that a record can be moved to its place
mkdir -p "$mu_home/tmp"
mkdir "$mu_tmp"
trap 'rm -rf "$mu_tmp"' EXIT
tar -xf - -C "$mu_tmp" || die 1 "cannot write to $mu_tmp"
(cd "$mu_tmp" && mu_sync ./*)
mu_code=0
for mu_id; do
	mu_go "$mu_id" || { mu_code=4; continue; }
	[ ! -d agent.json ] || [ -h agent.json ] || rm -rf agent.json
	mu_said=$(mv -f "$mu_tmp/$mu_id" agent.json 2>&1) || {
		printf '%s failed %s\n' "$mu_id" "$mu_said"
		mu_code=4
	}
done
exit "$mu_code"
