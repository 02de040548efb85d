# shellcheck shell=sh
# doctor [PROGRAM]…: print a line for each part that is installed, and the version of each PROGRAM of a client.
said() { printf '%s %s\n' "$1" "$(printf %s "$2" | tr '\n' ' ')"; }
if command -v git >/dev/null; then
	said git "$(git --version)"
	mu_name=$(git config user.name || :) mu_mail=$(git config user.email || :)
	[ -z "$mu_name" ] || [ -z "$mu_mail" ] || said identity "$mu_name <$mu_mail>"
fi
! command -v tmux >/dev/null || said tmux "$(tmux -V)"
! command -v python3 >/dev/null || said python3 "$(python3 --version 2>&1)"
! command -v ssh >/dev/null || said ssh "$(ssh -V 2>&1)"
if script --help 2>/dev/null | grep -q -e --log-timing; then said script "$(script --version)"; fi
if mkdir -p "$mu_home" 2>/dev/null && [ -w "$mu_home" ]; then said home "$mu_home"; fi
for mu_client in "$@"; do
	! command -v -- "$mu_client" >/dev/null || said "client:$mu_client" "$(mu_version "$mu_client")"
done
for mu_tool in apt-get dnf apk brew pacman; do
	if command -v "$mu_tool" >/dev/null; then
		said installer "$mu_tool"
		break
	fi
done
