# shellcheck shell=sh
# exec ID CMD…: a command in the agent's work dir, with the agent's own variables.
mu_dir=$mu_home/agents/$1
shift
mu_cwd=$(cat "$mu_dir/cwd") || die 3 "the agent has no work dir"
cd "$mu_cwd" || die 1 "the work dir is gone: $mu_cwd"
mu_users_locale
if [ -f "$mu_dir/env" ]; then
	# shellcheck disable=SC1091
	. "$mu_dir/env"
fi
set +e
umask "$mu_umask"
exec "$@"
