#Requires -Version 5.1
<#
.SYNOPSIS
Restarts gateways one after the other under load, and reports what their clients noticed.

.DESCRIPTION
Builds the load generator (or takes -Program), calls "loadtest restart" and
passes on its exit status: 0 every criterion was met, 1 one was not, 2 wrong
arguments, 130 interrupted. It starts all gateways itself, and ends them.

.EXAMPLE
./rolling-restart.ps1 -Gateway 'ws://127.0.0.1:8080/ws=bin/gateway serve' -Connections 500 -Rate 500
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    # A gateway as URL=COMMAND, such as
    # 'ws://127.0.0.1:8080/ws=bin/gateway serve --listen 127.0.0.1:8080'; several for
    # several nodes. The command is not run by a shell: words are separated by spaces,
    # and what holds spaces stands between single quotes (Windows PowerShell loses
    # double ones, so they are refused here).
    [Parameter(Mandatory = $true)][ValidatePattern('^wss?://[^="]+=[^"]+$')][string[]]$Gateway,
    # Address that answers 200 once a gateway is ready, such as
    # http://127.0.0.1:8081/readyz: one for each gateway, in the same order. Without
    # it a gateway is ready when a WebSocket handshake succeeds.
    [ValidatePattern('^https?://')][string[]]$Ready = @(),
    # Clients.
    [ValidateRange(1, 1000000)][int]$Connections = 5000,
    # Submissions a second over all clients, each an allocation and its mark.
    [ValidateRange(0.001, 10000000.0)][double]$Rate = 1000,
    # Signers that take turns.
    [ValidateRange(1, 100000000)][int]$Signers = 1000,
    # Number of the first signer. Without it one that no earlier run has used.
    [ValidateRange(-1, 9000000000000000)][long]$SignerBase = -1,
    # Time under load before the first restart, to compare with.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Before = '10s',
    # Time under load after each restart, before the next.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$After = '10s',
    # How often each gateway is restarted.
    [ValidateRange(1, 1000)][int]$Rounds = 1,
    # How long a gateway may take to drain before it is killed.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$StopTimeout = '30s',
    # What the gateway's /metrics ask for (its --admin-key); without it $env:NONCEGATE_ADMIN_KEY.
    [string]$AdminKey = '',
    # Where to write the HTML report. Without it a new file among the temporary ones.
    [string]$Report = '',
    # Where to write the report for machines; none without it.
    [string]$Json = '',
    # Open the HTML report at the end.
    [switch]$Open,
    # A load generator that is built already.
    [string]$Program = '',
    # Further arguments for "loadtest restart", as they are.
    [string[]]$Extra = @()
)
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')

$arguments = @(
    "--connections=$Connections",
    "--rate=$Rate",
    "--signers=$Signers",
    "--before=$Before",
    "--after=$After",
    "--rounds=$Rounds",
    "--stop-timeout=$StopTimeout"
)
foreach ($g in $Gateway) { $arguments += "--gateway=$g" }
foreach ($r in $Ready) { $arguments += "--ready=$r" }

Invoke-LoadTest -Command 'restart' -Arguments $arguments -SignerBase $SignerBase -AdminKey $AdminKey -Report $Report -Json $Json -Open:$Open -Program $Program -Extra $Extra
exit $LASTEXITCODE
