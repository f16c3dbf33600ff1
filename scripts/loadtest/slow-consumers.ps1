#Requires -Version 5.1
<#
.SYNOPSIS
Shows what happens to the good clients of a running gateway when bad ones stop reading.

.DESCRIPTION
Builds the load generator (or takes -Program), calls "loadtest slow" and passes
on its exit status: 0 every criterion was met, 1 one was not, 2 wrong arguments,
130 interrupted. Each round measures the healthy clients without slow ones and
with them, in alternation, on signers of its own.

.PARAMETER Url
WebSocket address of the gateway; several share the connections.

.PARAMETER Metrics
Address of the gateway's /metrics; without it the load generator's own default.

.PARAMETER Connections
Clients, the slow ones among them.

.PARAMETER SlowShare
Share of the clients that misbehaves, 0.2 for 20 %.

.PARAMETER Behaviour
stop: they stop reading. trickle: they read a few bytes a second. vanish: they
disconnect without a close and come back.

.PARAMETER Rate
Requests a second over all clients, latency counted from when each was due; the
share of the slow ones is sent only when they misbehave. Each slow client is to
be sent an event for every one of them, so with many clients choose it low.

.PARAMETER Rounds
How often both are measured.

.PARAMETER Signers
Signers that take turns.

.PARAMETER SignerBase
Number of the first signer of the first round; each round has fresh ones.
Without it one that no earlier run has used.

.PARAMETER Warmup
Time before measuring, in each run.

.PARAMETER Duration
Time measured, in each run.

.PARAMETER MaxP99Ratio
Criterion: the healthy clients' 99th percentile with slow ones over without, the
median of the rounds.

.PARAMETER Report
Where to write the HTML report. Without it a new file among the temporary ones.

.PARAMETER Json
Where to write the report for machines; none without it.

.PARAMETER Open
Open the HTML report at the end.

.PARAMETER Program
A load generator that is built already.

.PARAMETER Extra
Further arguments for "loadtest slow", as they are.

.EXAMPLE
./slow-consumers.ps1 -Connections 1000 -Rate 2000 -Behaviour trickle -Open
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    [ValidatePattern('^wss?://')][string[]]$Url = @('ws://127.0.0.1:8080/ws'),
    [ValidatePattern('^https?://')][string[]]$Metrics = @(),
    [ValidateRange(2, 1000000)][int]$Connections = 5000,
    [ValidateRange(0.001, 0.99)][double]$SlowShare = 0.2,
    [ValidateSet('stop', 'trickle', 'vanish')][string]$Behaviour = 'stop',
    [ValidateRange(0.001, 10000000.0)][double]$Rate = 500,
    [ValidateRange(1, 1000)][int]$Rounds = 3,
    [ValidateRange(1, 100000000)][int]$Signers = 1000,
    [ValidateRange(-1, 9000000000000000)][long]$SignerBase = -1,
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Warmup = '5s',
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Duration = '30s',
    [ValidateRange(0.01, 1000.0)][double]$MaxP99Ratio = 1.2,
    [string]$Report = '',
    [string]$Json = '',
    [switch]$Open,
    [string]$Program = '',
    [string[]]$Extra = @()
)
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')

if ($SignerBase -lt 0) { $SignerBase = Get-FreshSignerBase }
if (-not $Report) { $Report = Get-ReportPath -Name 'slow' }

$arguments = @(
    'slow',
    "--connections=$Connections",
    "--slow-share=$SlowShare",
    "--behaviour=$Behaviour",
    "--rate=$Rate",
    "--rounds=$Rounds",
    "--signers=$Signers",
    "--signer-base=$SignerBase",
    "--warmup=$Warmup",
    "--duration=$Duration",
    "--max-p99-ratio=$MaxP99Ratio",
    "--html=$Report"
)
foreach ($u in $Url) { $arguments += "--url=$u" }
foreach ($m in $Metrics) { $arguments += "--metrics=$m" }
if ($Json) { $arguments += "--json=$Json" }
$arguments += $Extra

Invoke-LoadTest -Program $Program -Arguments $arguments -Report $Report -Open:$Open
exit $LASTEXITCODE
