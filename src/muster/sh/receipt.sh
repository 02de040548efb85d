# shellcheck shell=sh
# receipt ID SEEN TICKS [SIZED]: print one line that changes as soon as the agent's client tells that it took a message. While that
# line is SEEN, wait for up to TICKS twentieths of a second. With SIZED the size of the client's transcript is part of the line, and
# after a change this waits until there was no further one for a moment.
mu_enter "$1"
mu_seen=$2 mu_left=$3 mu_sized=${4-} mu_kept=

# Events begin with their time. Of what the client says only digits are printed.
mu_look() {
	mu_now=
	[ ! -h ev ] || die 1 "$PWD/ev was replaced by a link"
	for mu_file in ev/prompt ev/queued; do
		[ ! -f "$mu_file" ] || [ -h "$mu_file" ] || mu_now=$mu_now$(head -c 30 "$mu_file")
		mu_now=$mu_now/
	done
	[ ! -f heard.json ] || [ -h heard.json ] || mu_now=$mu_now$(cksum <heard.json)
	if [ -n "$mu_sized" ]; then
		# The client may have had no transcript until now.
		[ -n "$mu_kept" ] || mu_kept=$(mu_transcript "$PWD")
		[ ! -f "$mu_kept" ] || mu_now=$mu_now/$(wc -c <"$mu_kept")
	fi
	mu_now=at:$(printf %s "$mu_now" | LC_ALL=C tr -cd '0-9./')
}

mu_look
while [ "$mu_now" = "$mu_seen" ] && [ "$mu_left" -gt 0 ]; do
	sleep 0.05 2>/dev/null || sleep 1
	mu_left=$((mu_left - 1))
	mu_look
done
if [ -n "$mu_sized" ] && [ -n "$mu_seen" ] && [ "$mu_now" != "$mu_seen" ]; then
	for mu_left in 1 2 3 4 5; do
		mu_last=$mu_now
		sleep 0.2 2>/dev/null || sleep 1
		mu_look
		[ "$mu_last" != "$mu_now" ] || break
	done
fi
printf '%s\n' "$mu_now"
