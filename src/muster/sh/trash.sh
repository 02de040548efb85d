# shellcheck shell=sh
# trash VERB …: the way of an agent's folder and work dir to the trash and back. Every move is a rename.
mu_verb=$1
shift
if ! cd "$mu_home" 2>/dev/null; then
	case $mu_verb in list | left) exit 0 ;; esac # nothing was ever made here
	die 3 "there is no $mu_home"
fi
mu_folders() { # ID…: make their folders in the trash
	set -- "$@" ''
	while [ -n "$1" ]; do
		mu_dir=trash/$1
		shift
		[ -d "$mu_dir" ] || set -- "$@" "$mu_dir"
	done
	shift
	[ $# = 0 ] || mkdir -p "$@"
}

mu_keep_transcript() { # ID
	mu_file=$(mu_transcript "$mu_home/agents/$1")
	[ ! -h "agents/$1/session" ] || rm -f "agents/$1/session"
	# A client may keep it there by itself.
	[ -z "$mu_file" ] || [ "$mu_file" = "$mu_home/agents/$1/session/client.jsonl" ] || {
		mkdir -p "agents/$1/session" && rm -f "agents/$1/session/client.jsonl" && cp "$mu_file" "agents/$1/session/client.jsonl" 2>/dev/null
	} || :
}

case $mu_verb in
work)
	# work ID…: the work dirs, if they are still where they were; a line `ID failed WHY` for each that cannot be moved, and then 4.
	mu_code=0
	mu_folders "$@"
	for mu_id; do
		if [ -e "work/$mu_id" ] && [ ! -e "trash/$mu_id/work" ]; then
			mu_said=$(mv "work/$mu_id" "trash/$mu_id/work" 2>&1) || {
				printf '%s failed %s\n' "$mu_id" "$mu_said"
				mu_code=4
			}
		fi
	done
	exit "$mu_code"
	;;
forget)
	# forget ID…: the agents' folders; from here on they are only in the trash, with a copy of what the client keeps of the
	# conversation. A name on stdin, one a line in the same order, is given up.
	mu_folders "$@"
	mu_free=
	for mu_id; do
		IFS= read -r mu_name
		if [ -e "agents/$mu_id/ev/session" ] || [ -e "agents/$mu_id/client/key" ] || [ -h "agents/$mu_id/session" ]; then
			mu_keep_transcript "$mu_id"
		fi
		if [ -e "agents/$mu_id" ] || [ -h "agents/$mu_id" ]; then
			mu_said=$(mv "agents/$mu_id" "trash/$mu_id/agent" 2>&1) || {
				printf '%s failed %s\n' "$mu_id" "$mu_said"
				continue
			}
		fi
		if { read -r mu_owner <"names/$mu_name"; } 2>/dev/null && [ "$mu_owner" = "$mu_id" ]; then mu_free="$mu_free names/$mu_name"; fi
	done
	# shellcheck disable=SC2086  # names of agents are plain words
	[ -z "$mu_free" ] || rm -f $mu_free
	mu_sync trash agents names
	;;
room) rm -f reserve ;; # what claim kept for a full disk
scrap)
	# scrap ID: what a failed create left; all of it was a copy.
	for mu_dir in "work/$1" "trash/$1"; do
		chmod -R u+w "$mu_dir" 2>/dev/null || :
		rm -rf "$mu_dir"
	done
	;;
list)
	printf '%s\n' "$mu_home"
	for mu_dir in trash/*; do
		[ -f "$mu_dir/agent/agent.json" ] || continue
		printf '%s\t' "${mu_dir#trash/}"
		head -n 1 "$mu_dir/agent/agent.json"
	done
	;;
back)
	# back ID NAME: the work dir first, the record last; 17 when the name is taken.
	[ -d "trash/$1/agent" ] || die 3 "$1 is not in the trash"
	mkdir -p agents names
	mu_owner=$(cat "names/$2" 2>/dev/null) || mu_owner=
	if [ -n "$mu_owner" ] && [ "$mu_owner" != "$1" ] && [ -d "agents/$mu_owner" ]; then die 17 "the name $2 is taken"; fi
	mu_moved=
	if [ -e "trash/$1/work" ]; then
		[ ! -e "work/$1" ] || die 17 "$mu_home/work/$1 is in the way"
		mkdir -p work
		mv "trash/$1/work" "work/$1"
		mu_moved=1
	fi
	mv "trash/$1/agent" "agents/$1"
	if ! mu_take "$1" "$2"; then
		mv "agents/$1" "trash/$1/agent"
		[ -z "$mu_moved" ] || mv "work/$1" "trash/$1/work"
		die 17 "the name $2 is taken"
	fi
	rm -f "agents/$1/destroy.lock"
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
	# A second name of an agent: a rename was killed, and not repeated.
	for mu_file in names/*; do
		[ -n "$(find "$mu_file" -prune -type f -mmin +5 2>/dev/null)" ] || continue
		mu_id=$(cat "$mu_file")
		mu_name=$(sed -n '1s/^{"id": "[^"]*", "name": "\([A-Za-z0-9_-]*\)".*/\1/p' "agents/$mu_id/agent.json" 2>/dev/null) || continue
		[ -n "$mu_name" ] && [ "names/$mu_name" != "$mu_file" ] && [ "$(cat "names/$mu_name" 2>/dev/null)" = "$mu_id" ] || continue
		printf 'name\t%s\t0\n' "${mu_file#names/}"
	done
	for mu_dir in tmp/*; do
		# A younger one may be in use.
		[ -e "$mu_dir" ] && [ -n "$(find "$mu_dir" -prune -mmin +1440)" ] || continue
		printf 'scratch\t%s\t%s\n' "${mu_dir#tmp/}" "$(mu_size "$mu_dir")"
	done
	for mu_session in $(mu_tmux list-sessions -F '#{session_name}' 2>/dev/null); do
		[ ! -d "agents/$mu_session" ] || continue
		printf 'session\t%s\t0\n' "$mu_session"
	done
	# Processes of agents that have no folder any more. Other state folders on this machine have agents too.
	if [ -r /proc/self/environ ]; then
		LC_ALL=C grep -hozs '^MUSTER_AGENT_DIR=/.*/agents/[A-Za-z0-9_-]*$' /proc/[0-9]*/environ | tr '\0' '\n' |
			sed 's/^MUSTER_AGENT_DIR=//' | sort -u | while IFS= read -r mu_dir; do
			case $mu_dir in "$mu_home/agents/"* | "$PWD/agents/"*) ;; *) continue ;; esac
			[ -d "agents/${mu_dir##*/}" ] || printf 'process\t%s\t0\n' "${mu_dir##*/}"
		done
	fi
	;;
clean)
	# clean KIND NAME < reap.sh: one left-over; a work dir goes to the trash, it may hold something.
	case $1 in
	folder) rm -rf "agents/$2" ;;
	scratch) rm -rf "tmp/$2" ;;
	name)
		rm -f "names/$2"
		find names -type f -name '.*' -mmin +5 -exec rm -f {} +
		;;
	process) sh -c "$(cat)" reap "$2" 100 ;;
	session) mu_tmux kill-session -t "=$2:" ;;
	work)
		mkdir -p "trash/$2"
		mv "work/$2" "trash/$2/work"
		;;
	esac
	;;
*) die 2 "no such verb: $mu_verb" ;;
esac
