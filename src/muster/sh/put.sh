# shellcheck shell=sh
# put ID RECORD FOLDER… < tar: write files into an agent's folder. RECORD, unless it is empty, is one of them; it becomes
# agent.json at once, and is on the disk when this returns. The FOLDERs are those that the files are in.
mu_id=$1 mu_record=$2
shift 2
mu_enter "$mu_id"
# tar would write through a link that the agent put in the place of a folder.
for mu_folder; do [ ! -h "$mu_folder" ] || rm -f "$mu_folder"; done
# Of a file that is there already tar says only that it exists, whatever keeps it from being replaced.
: >".put.$$"
rm -f ".put.$$"
if ! tar -xf -; then
	[ -z "$mu_record" ] || rm -f "$mu_record"
	die 1 "cannot write to $mu_home/agents/$mu_id"
fi
[ -n "$mu_record" ] || exit 0
[ ! -d agent.json ] || [ -h agent.json ] || rm -rf agent.json
mu_sync "$mu_record"
mv -f "$mu_record" agent.json
mu_sync . .. ../../names
