#!/bin/sh
# Makes sure that the tests find a PostgreSQL server to start. Does nothing when
# initdb is there; installs the distribution's package as root on Debian and
# Ubuntu, without a cluster of its own; else says what to install.
set -eu

found() {
	bindir=$(pg_config --bindir 2>/dev/null || true)
	for dir in $(printf %s "$PATH" | tr : ' ') "$bindir" \
		/usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin; do
		if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
			return 0
		fi
	done
	return 1
}

install_packages() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

found && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	cat >&2 <<-'END'
	The tests start a PostgreSQL server of their own and found none. Install it:
	  Debian, Ubuntu:  sudo apt-get install postgresql
	  Fedora:          sudo dnf install postgresql-server
	  Alpine:          apk add postgresql
	  macOS:           brew install postgresql
	END
	exit 1
fi

echo "installing postgresql for the tests"
# The package lists may be missing or too old to install from.
install_packages postgresql-common || { apt-get update; install_packages postgresql-common; }

# The package makes and starts a default cluster unless told not to; the
# machine's own setting is put back afterwards.
conf=/etc/postgresql-common/createcluster.conf
saved=$(mktemp)
cp -p "$conf" "$saved"
trap 'cp -p "$saved" "$conf"; rm -f "$saved"' EXIT
echo "create_main_cluster = false" >>"$conf"
install_packages postgresql

found || { echo "postgresql is installed, and still there is no initdb" >&2; exit 1; }
