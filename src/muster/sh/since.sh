# shellcheck shell=sh
# since ID INODE SIZE LIMIT NAME: what was added to a file of an agent's folder; an empty NAME is the transcript that the agent's
# client keeps. INODE and SIZE say how far the caller has read. Prints `INODE SIZE live|gone more|fresh` and then the new bytes, of
# all of which not more than the last LIMIT. INODE and SIZE are for the next call. With `fresh` this is another file than before, from
# its beginning on. An agent that was destroyed is `gone`.
mu_enter "$1" trash
mu_inode=$2 mu_size=$3 mu_limit=$4 mu_file=$5
case $mu_dir in "$mu_home/agents/"*) mu_life=live ;; *) mu_life=gone ;; esac

mu_node() { # FILE: its inode
	mu_said=$(ls -di -- "$1")
	mu_said=${mu_said#"${mu_said%%[0-9]*}"}
	printf '%s\n' "${mu_said%% *}"
}
mu_length() { wc -c <"$1" | tr -cd '0-9'; }
mu_part() { # FILE FROM TO
	[ "$3" -le "$2" ] || tail -c "+$(($2 + 1))" "$1" | head -c "$(($3 - $2))"
}

mu_before=
if [ -z "$mu_file" ]; then
	mu_file=$(mu_transcript "$mu_dir")
	[ -n "$mu_file" ] || mu_file=session/client.jsonl
fi
case $mu_file in
/*) ;;
*)
	! mu_linked "$mu_file" || die 1 "$mu_dir/$mu_file was replaced by a link"
	# The log of events starts over when it is long, and the old one is kept under this name.
	mu_before=${mu_file%.jsonl}.1.jsonl
	[ -f "$mu_before" ] && [ ! -h "$mu_before" ] || mu_before=
	;;
esac
if [ ! -f "$mu_file" ]; then
	printf '0 0 %s more\n' "$mu_life"
	exit 0
fi
mu_now=$(mu_node "$mu_file") mu_end=$(mu_length "$mu_file") mu_from=0 mu_rest=0 mu_how=fresh
if [ "$mu_now" = "$mu_inode" ] && [ "$mu_size" -le "$mu_end" ]; then
	mu_how=more mu_from=$mu_size mu_before=
elif [ -n "$mu_before" ] && [ "$(mu_node "$mu_before")" = "$mu_inode" ]; then
	mu_how=more mu_rest=$mu_size
fi
[ $((mu_end - mu_from)) -le "$mu_limit" ] || mu_from=$((mu_end - mu_limit))
printf '%s %s %s %s\n' "$mu_now" "$mu_end" "$mu_life" "$mu_how"
[ -z "$mu_before" ] || mu_part "$mu_before" "$mu_rest" "$(mu_length "$mu_before")"
mu_part "$mu_file" "$mu_from" "$mu_end"
