#!/bin/sh
# Installs or upgrades a gateway on this host:
#
#   deploy/install.sh [--root DIR] PROGRAM
#
# PROGRAM is a gateway that was built for it. The program and the unit are
# overwritten; settings that are there already are not. Nothing is started. With
# --root all of it goes below DIR, no user is made and no owner is set.
set -eu

root=
if [ "${1:-}" = --root ]; then
	[ $# -ge 2 ] || { echo "install.sh: --root needs a folder" >&2; exit 2; }
	root=$2
	shift 2
fi
[ $# -eq 1 ] || { echo "usage: install.sh [--root DIR] PROGRAM" >&2; exit 2; }
program=$1
here=$(cd "$(dirname "$0")" && pwd)

"$program" version >/dev/null || { echo "install.sh: $program is not a gateway for this host" >&2; exit 1; }
if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
	echo "install.sh: must be run as root, or with --root" >&2
	exit 1
fi

# put MODE FILE PLACE [GROUP]: owned by root, and by GROUP where MODE lets it read.
put() {
	install -D -m "$1" "$2" "$root$3"
	[ -n "$root" ] || chown "root:${4:-root}" "$3"
}

if [ -z "$root" ] && ! getent passwd noncegate >/dev/null; then
	command -v useradd >/dev/null || { echo "install.sh: no useradd here; make a user and a group noncegate first" >&2; exit 1; }
	useradd --system --user-group --no-create-home --home-dir /var/lib/noncegate --shell /usr/sbin/nologin noncegate
fi
install -d -m 0750 "$root/etc/noncegate" "$root/etc/noncegate/tls"
install -d -m 0700 "$root/var/lib/noncegate"
if [ -z "$root" ]; then
	chown root:noncegate /etc/noncegate /etc/noncegate/tls
	chown noncegate:noncegate /var/lib/noncegate
fi

# A running program cannot be written, but replaced.
put 0755 "$program" /usr/local/bin/gateway.new
mv -f "$root/usr/local/bin/gateway.new" "$root/usr/local/bin/gateway"
put 0644 "$here/systemd/noncegate.service" /etc/systemd/system/noncegate.service
for file in noncegate.yaml rights.yaml; do
	[ -e "$root/etc/noncegate/$file" ] || put 0640 "$here/systemd/$file" "/etc/noncegate/$file" noncegate
done
[ -e "$root/etc/noncegate/noncegate.env" ] || put 0600 "$here/systemd/noncegate.env" /etc/noncegate/noncegate.env

echo "installed $("$root/usr/local/bin/gateway" version)"
[ -z "$root" ] || exit 0
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	echo "settings: /etc/noncegate; then: systemctl enable noncegate, and start or restart it"
else
	echo "settings: /etc/noncegate. No systemd runs here: start it as the user noncegate, with"
	echo "  /usr/local/bin/gateway serve --config /etc/noncegate/noncegate.yaml"
fi
