#!/bin/sh
# Makes sure that the tests find what they need beside Go: a C compiler, for the
# race detector, and a PostgreSQL server to start. Does nothing when both are
# there; installs the distribution's packages as root on Debian and Ubuntu, the
# server without a cluster of its own; else says what to install.
set -eu

compiler() {
	command -v "$(go env CC)" >/dev/null 2>&1
}

server() {
	bindir=$(pg_config --bindir 2>/dev/null || true)
	for dir in $(printf %s "$PATH" | tr : ' ') "$bindir" \
		/usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
			return 0
		fi
	done
	return 1
}

# The package lists may be missing or too old to install from.
install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	echo "installing for the tests: $*"
	apt-get install -y --no-install-recommends "$@" ||
		{ apt-get update && apt-get install -y --no-install-recommends "$@"; }
}

may_install() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

if ! compiler; then
	if ! may_install; then
		cat >&2 <<-'END'
		The tests run with the race detector, which needs a C compiler. Install it:
		  Debian, Ubuntu:  sudo apt-get install gcc libc6-dev
		  Fedora:          sudo dnf install gcc
		  Alpine:          apk add gcc musl-dev
		  macOS:           xcode-select --install
		END
		exit 1
	fi
	install_packages gcc libc6-dev
	compiler || { echo "gcc is installed, and still there is no $(go env CC)" >&2; exit 1; }
fi

server && exit 0

if ! may_install; then
	cat >&2 <<-'END'
	The tests start a PostgreSQL server of their own and found none. Install it:
	  Debian, Ubuntu:  sudo apt-get install postgresql
	  Fedora:          sudo dnf install postgresql-server
	  Alpine:          apk add postgresql
	  macOS:           brew install postgresql
	END
	exit 1
fi

install_packages postgresql-common

# The package makes and starts a default cluster unless told not to; the
# machine's own setting is put back afterwards.
conf=/etc/postgresql-common/createcluster.conf
saved=$(mktemp)
cp -p "$conf" "$saved"
trap 'cp -p "$saved" "$conf"; rm -f "$saved"' EXIT
echo "create_main_cluster = false" >>"$conf"
install_packages postgresql

server || { echo "postgresql is installed, and still there is no initdb" >&2; exit 1; }
