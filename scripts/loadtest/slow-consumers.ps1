#Requires -Version 5.1
<#
.SYNOPSIS
Shows what happens to the good clients of a running gateway when bad ones stop reading.

.DESCRIPTION
Builds the load generator (or takes -Program), calls "loadtest slow" and passes
on its exit status: 0 every criterion was met, 1 one was not, 2 wrong arguments,
130 interrupted. Each round measures the healthy clients without slow ones and
with them, in alternation, on signers of its own.

.EXAMPLE
./slow-consumers.ps1 -Connections 1000 -Rate 2000 -Behaviour trickle -Open
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    # WebSocket address of the gateway; several share the connections.
    [ValidatePattern('^wss?://')][string[]]$Url = @('ws://127.0.0.1:8080/ws'),
    # Address of the gateway's /metrics; without it the load generator's own default.
    [ValidatePattern('^https?://')][string[]]$Metrics = @(),
    # Clients, the slow ones among them.
    [ValidateRange(2, 1000000)][int]$Connections = 5000,
    # Share of the clients that misbehaves, 0.2 for 20 %.
    [ValidateRange(0.001, 0.99)][double]$SlowShare = 0.2,
    # stop: they stop reading. trickle: they read a few bytes a second.
    [ValidateSet('stop', 'trickle')][string]$Behaviour = 'stop',
    # Requests a second over all clients, latency counted from when each was due; the
    # share of the slow ones is sent only when they misbehave. Each slow client is to
    # be sent an event for every one of them, so with many clients choose it low.
    [ValidateRange(0.001, 10000000.0)][double]$Rate = 500,
    # How often both are measured.
    [ValidateRange(1, 1000)][int]$Rounds = 3,
    # Signers that take turns.
    [ValidateRange(1, 100000000)][int]$Signers = 1000,
    # Number of the first signer of the first round; each round has fresh ones.
    # Without it one that no earlier run has used.
    [ValidateRange(-1, 9000000000000000)][long]$SignerBase = -1,
    # Time before measuring, in each run.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Warmup = '5s',
    # Time measured, in each run.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Duration = '30s',
    # Criterion: the healthy clients' 99th percentile with slow ones over without, the
    # median of the rounds.
    [ValidateRange(0.01, 1000.0)][double]$MaxP99Ratio = 1.2,
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
    # Further arguments for "loadtest slow", as they are.
    [string[]]$Extra = @()
)
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')

$arguments = @(
    "--connections=$Connections",
    "--slow-share=$SlowShare",
    "--behaviour=$Behaviour",
    "--rate=$Rate",
    "--rounds=$Rounds",
    "--signers=$Signers",
    "--warmup=$Warmup",
    "--duration=$Duration",
    "--max-p99-ratio=$MaxP99Ratio"
)
foreach ($u in $Url) { $arguments += "--url=$u" }
foreach ($m in $Metrics) { $arguments += "--metrics=$m" }

Invoke-LoadTest -Command 'slow' -Arguments $arguments -SignerBase $SignerBase -AdminKey $AdminKey -Report $Report -Json $Json -Open:$Open -Program $Program -Extra $Extra
exit $LASTEXITCODE
