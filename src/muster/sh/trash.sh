# shellcheck shell=sh
# trash VERB …: the way of an agent's folder and work dir to the trash and back. Every move is a rename.
mu_verb=$1
shift
if ! cd "$mu_home" 2>/dev/null; then
	case $mu_verb in list | left) exit 0 ;; esac # nothing was ever made here
	die 3 "there is no $mu_home"
fi
case $mu_verb in
work)
	# work ID WORKDIR: the work dir, if it is still where it was.
	mkdir -p "trash/$1"
	if [ -e "$2" ] && [ ! -e "trash/$1/work" ]; then
		mv "$2" "trash/$1/work" || die 1 "cannot move $2"
	fi
	;;
forget)
	# forget ID NAME: the agent's folder and its name; from here on it is only in the trash, with a copy of what its client
	# keeps of the conversation.
	mkdir -p "trash/$1"
	mu_file=$(sed -n 's/.*"where":"\([^"\\]*\)".*/\1/p' "agents/$1/ev/session" 2>/dev/null) || mu_file=
	case $mu_file in
	/*.jsonl)
		[ ! -f "$mu_file" ] || { mkdir -p "agents/$1/session" && cp "$mu_file" "agents/$1/session/client.jsonl" 2>/dev/null; } || :
		;;
	esac
	[ ! -d "agents/$1" ] || mv "agents/$1" "trash/$1/agent"
	[ "$(cat "names/$2" 2>/dev/null)" != "$1" ] || rm -f "names/$2"
	;;
unregister)
	# unregister ID COMMON BRANCH BASE: what git was told of a work dir that was never finished. The branch goes only if
	# this work dir was on it, and it is where it began.
	[ -d "$2/worktrees/$1" ] || exit 0
	mu_head=$(cat "$2/worktrees/$1/HEAD" 2>/dev/null) || mu_head=
	rm -rf "$2/worktrees/$1"
	rmdir "$2/worktrees" 2>/dev/null || :
	if [ "$mu_head" = "ref: refs/heads/$3" ]; then
		git --git-dir="$2" -c core.hooksPath=/dev/null update-ref -d "refs/heads/$3" "$4"
	fi
	;;
scrap)
	# scrap ID: what a failed create left; all of it was a copy.
	for mu_dir in "work/$1" "trash/$1"; do
		chmod -R u+w "$mu_dir" 2>/dev/null || :
		rm -rf "$mu_dir"
	done
	;;
list)
	for mu_dir in trash/*; do
		[ -f "$mu_dir/agent/agent.json" ] || continue
		printf '%s\t' "${mu_dir#trash/}"
		head -n 1 "$mu_dir/agent/agent.json"
	done
	;;
back)
	# back ID NAME WORKDIR: the work dir first, the record last; 17 when the name is taken.
	[ -d "trash/$1/agent" ] || die 3 "$1 is not in the trash"
	mkdir -p agents names
	mu_owner=$(cat "names/$2" 2>/dev/null) || mu_owner=
	if [ -n "$mu_owner" ] && [ "$mu_owner" != "$1" ] && [ -d "agents/$mu_owner" ]; then die 17 "the name $2 is taken"; fi
	if [ -n "$3" ] && [ -e "trash/$1/work" ]; then
		[ ! -e "$3" ] || die 17 "$3 is in the way"
		mkdir -p "$(dirname "$3")"
		mv "trash/$1/work" "$3"
	fi
	mv "trash/$1/agent" "agents/$1"
	if ! mu_take "$1" "$2"; then
		mv "agents/$1" "trash/$1/agent"
		[ -z "$3" ] || [ ! -e "$3" ] || mv "$3" "trash/$1/work"
		die 17 "the name $2 is taken"
	fi
	rm -f "agents/$1/destroy.lock"
	rmdir "trash/$1" 2>/dev/null || :
	;;
swept)
	# swept ID: what a restore leaves behind until the record is safe.
	rm -f "trash/$1/name"
	rmdir "trash/$1" 2>/dev/null || :
	;;
drop)
	# drop ID: for good.
	chmod -R u+w "trash/$1" 2>/dev/null || :
	rm -rf "trash/$1"
	;;
left)
	# left MINUTES: everything that no record explains: KIND<TAB>NAME<TAB>KB, and <TAB>old when it came to the trash before
	mu_size() { du -sk "$1" 2>/dev/null | cut -f1; }
	for mu_dir in trash/*; do
		[ -d "$mu_dir" ] || continue
		mu_age=
		if [ "$1" = 0 ] || [ -n "$(find "$mu_dir" -prune -mmin "+$1")" ]; then mu_age=old; fi
		printf 'trash\t%s\t%s\t%s\n' "${mu_dir#trash/}" "$(mu_size "$mu_dir")" "$mu_age"
	done
	for mu_dir in agents/.[!.]*; do
		[ -d "$mu_dir" ] && [ -n "$(find "$mu_dir" -prune -mmin +5)" ] || continue
		printf 'folder\t%s\t%s\n' "${mu_dir#agents/}" "$(mu_size "$mu_dir")"
	done
	for mu_dir in work/*; do
		[ -e "$mu_dir" ] && [ ! -d "agents/${mu_dir#work/}" ] || continue
		printf 'work\t%s\t%s\n' "${mu_dir#work/}" "$(mu_size "$mu_dir")"
	done
	for mu_file in names/*; do
		[ -f "$mu_file" ] && [ ! -d "agents/$(cat "$mu_file")" ] || continue
		printf 'name\t%s\t0\n' "${mu_file#names/}"
	done
	for mu_dir in tmp/*; do
		# A younger one may be in use.
		[ -d "$mu_dir" ] && [ -n "$(find "$mu_dir" -prune -mmin +1440)" ] || continue
		printf 'scratch\t%s\t%s\n' "${mu_dir#tmp/}" "$(mu_size "$mu_dir")"
	done
	for mu_session in $(mu_tmux list-sessions -F '#{session_name}' 2>/dev/null); do
		[ ! -d "agents/$mu_session" ] || continue
		printf 'session\t%s\t0\n' "$mu_session"
	done
	;;
clean)
	# clean KIND NAME: one left-over; a work dir goes to the trash, it may hold something.
	case $1 in
	folder) rm -rf "agents/$2" ;;
	scratch) rm -rf "tmp/$2" ;;
	name)
		rm -f "names/$2"
		find names -type f -name '.*' -mmin +5 -exec rm -f {} +
		;;
	session) mu_tmux kill-session -t "=$2:" ;;
	work)
		mkdir -p "trash/$2"
		mv "work/$2" "trash/$2/work"
		;;
	esac
	;;
*) die 2 "no such verb: $mu_verb" ;;
esac
