#!/bin/sh
# setup-test.sh [race] [long] [failover]: makes sure that the tests and `make bench` find what they start
# beside Go, with "race" also a C compiler, with "long" also Chromium, with "failover" also Patroni and etcd, and does nothing when all of it is there. As root on Debian
# and Ubuntu it installs the distribution's packages, and no service of theirs is started or enabled; elsewhere
# it says what to install.
set -eu

go=${GO:-go}
has() { command -v "$1" >/dev/null 2>&1; }

# What is needed: its name, what it is for, its packages on Debian and Ubuntu, on
# Fedora and on Alpine, and what to run on macOS. A function has_NAME says whether it
# is there, install_NAME installs it on Debian.
needs='
compiler|a C compiler, for the race detector|gcc libc6-dev|gcc|gcc musl-dev|xcode-select --install
postgresql|a PostgreSQL server to start|postgresql|postgresql-server|postgresql|brew install postgresql
redis|a Redis server to start|redis-server|redis|redis|brew install redis
prometheus|promtool, for rules and dashboards|prometheus|golang-github-prometheus|prometheus|brew install prometheus
node|node and npm, for the chain (anvil) and the wallets of test/interop|nodejs npm|nodejs npm|nodejs npm|brew install node
chromium|a browser, for the console, and the package of sdk/typescript in a page|chromium|chromium|chromium|brew install --cask chromium
patroni|Patroni and etcd, for a PostgreSQL that fails over|patroni etcd-server|patroni etcd|patroni etcd|(on Linux only)
'

has_compiler() { has "$("$go" env CC)"; }
has_redis() { has redis-server; }
has_prometheus() { has promtool; }
has_node() { has node && has npm; }
has_chromium() { has chromium || has chromium-browser; }
has_patroni() { has patroni && has etcd; }

# Debian keeps the server's programs out of PATH.
has_postgresql() {
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
apt_install() {
	echo "installing for the tests: $*"
	apt-get install -y --no-install-recommends "$@" ||
		{ apt-get update && apt-get install -y --no-install-recommends "$@"; }
}

install_compiler() { apt_install gcc libc6-dev; }

# The package makes and starts a cluster of its own unless told not to.
install_postgresql() {
	apt_install postgresql-common
	replace /etc/postgresql-common/createcluster.conf
	echo 'create_main_cluster = false' >>/etc/postgresql-common/createcluster.conf
	apt_install postgresql
	stay_off postgresql
}

install_redis() {
	apt_install redis-server
	stay_off redis-server
}

install_prometheus() {
	apt_install prometheus
	stay_off prometheus
}

# NodeSource's nodejs has npm in it and conflicts with Debian's package npm.
install_node() {
	has node || apt_install nodejs
	has npm || apt_install npm
}

install_chromium() { apt_install chromium; }

install_patroni() {
	apt_install patroni etcd-server
	stay_off patroni
	stay_off etcd
}

# Nobody asked for a service, so it shall not start with the machine either.
stay_off() { update-rc.d "$1" disable >/dev/null 2>&1 || true; }

# replace FILE: it may be changed, and is put back or removed at the end.
replace() {
	replaced="$replaced $1"
	mkdir -p "$saved$(dirname "$1")"
	if [ -e "$1" ] || [ -L "$1" ]; then
		cp -pP "$1" "$saved$1"
	fi
}

put_back() {
	for file in $replaced; do
		rm -f "$file"
		if [ -e "$saved$file" ] || [ -L "$saved$file" ]; then
			cp -pP "$saved$file" "$file"
		fi
	done
	rm -rf "$saved"
}

# install_all NAME...: installs as root on Debian and Ubuntu. Packages start their
# services through invoke-rc.d, which asks policy-rc.d; 101 is no.
install_all() {
	export DEBIAN_FRONTEND=noninteractive
	replaced='' saved=$(mktemp -d)
	trap put_back EXIT
	trap 'exit 1' HUP INT TERM
	replace /usr/sbin/policy-rc.d
	rm -f /usr/sbin/policy-rc.d # it may be a link
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
	for name; do
		"install_$name"
		"has_$name" || { echo "$name: its packages are installed, and it is still not found" >&2; exit 1; }
	done
}

# say_all NAME...: what a person has to install.
say_all() {
	echo "The tests need programs that are not here. Install them:"
	printf '%s' "$needs" | while IFS='|' read -r name what debian fedora alpine macos; do
		case " $* " in *" $name "*) ;; *) continue ;; esac
		printf '%s\n' "$what" "  Debian, Ubuntu:  sudo apt-get install $debian" \
			"  Fedora:          sudo dnf install $fedora" "  Alpine:          apk add $alpine" \
			"  macOS:           $macos"
	done
}

has "$go" || { echo "no $go in PATH: Go is needed first, see https://go.dev/dl" >&2; exit 1; }

missing=
for name in $(printf '%s' "$needs" | cut -d '|' -f 1); do
	case $name in
	compiler) only=race ;;
	chromium) only=long ;;
	patroni) only=failover ;;
	*) only= ;;
	esac
	[ -z "$only" ] || case " $* " in *" $only "*) ;; *) continue ;; esac
	"has_$name" || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

# shellcheck disable=SC2086 # a list of names, which have no blanks
if [ "$(id -u)" = 0 ] && has apt-get; then
	install_all $missing
else
	say_all $missing >&2
	exit 1
fi
