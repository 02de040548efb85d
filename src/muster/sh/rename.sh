# shellcheck shell=sh
# rename take ID NEW: claim the new name beside the old one; 17 when another agent has it.
# rename drop ID NEW: give it back.
# rename record ID OLD NEW RECORD < tar with the changed record: make the new name the agent's name.
# Killed in between, the agent has both names, and the one in its record counts; all steps can be repeated.
mu_verb=$1 mu_id=$2
shift 2
cd "$mu_home"
[ -d "agents/$mu_id" ] || die 3 "no agent $mu_id"
case $mu_verb in
take)
	mu_code=0
	mu_take "$mu_id" "$1" || mu_code=$?
	[ "$mu_code" = 0 ] || die "$mu_code" "the name $1 is taken"
	;;
drop) [ "$(cat "names/$1" 2>/dev/null)" != "$mu_id" ] || rm -f "names/$1" ;;
record)
	mu_enter "$mu_id"
	if ! tar -xf -; then
		rm -f "$3"
		die 1 "cannot write to $mu_home/agents/$mu_id"
	fi
	[ ! -d agent.json ] || [ -h agent.json ] || rm -rf agent.json
	mu_sync "$3"
	mv -f "$3" agent.json
	cd "$mu_home/names"
	if [ "$1" != "$2" ] && [ "$(cat "$1" 2>/dev/null)" = "$mu_id" ]; then rm -f "$1"; fi
	mu_sync . "$2" "$mu_home/agents/$mu_id"
	;;
*) die 2 "no such verb: $mu_verb" ;;
esac
