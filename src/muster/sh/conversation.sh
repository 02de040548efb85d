# shellcheck shell=sh
# conversation ID LIMIT: print the last LIMIT bytes of the transcript that the agent's client keeps, or, for a destroyed agent,
# of the copy that `destroy` made (see trash.sh).
mu_dir=$mu_home/agents/$1
[ -d "$mu_dir" ] || mu_dir=$mu_home/trash/$1/agent
if [ -h "$mu_dir" ] || [ -h "$mu_dir/session" ] || [ -h "$mu_dir/session/client.jsonl" ]; then exit 0; fi
mu_file=$(mu_transcript "$mu_dir")
[ -n "$mu_file" ] || mu_file=$mu_dir/session/client.jsonl
[ ! -f "$mu_file" ] || exec tail -c "$2" "$mu_file"
