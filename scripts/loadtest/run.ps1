#Requires -Version 5.1
<#
.SYNOPSIS
Loads a running gateway and reports what it carries: the baseline.

.DESCRIPTION
Builds the load generator (or takes -Program), calls "loadtest run" and passes on
its exit status: 0 every criterion was met, 1 one was not, 2 wrong arguments,
130 interrupted.

.PARAMETER Url
WebSocket address of the gateway; several share the connections.

.PARAMETER Metrics
Address of the gateway's /metrics; without it the load generator's own default.

.PARAMETER Connections
Clients.

.PARAMETER Inflight
Requests a client sends in one burst.

.PARAMETER Rate
Requests a second over all clients, latency counted from when each was due.
0: as fast as answers come.

.PARAMETER Mix
Shares of the methods, such as 'allocate=6,markUsed=3,markRecyclable=1', or 'pairs':
each client marks what it was given as used before it asks for more.

.PARAMETER Signers
Signers that take turns; 1 is one hot signer.

.PARAMETER SignerBase
Number of the first signer. Without it one that no earlier run has used.

.PARAMETER Subscribers
Further clients that receive the events of all signers.

.PARAMETER RampUp
Time over which the connections are opened.

.PARAMETER Warmup
Time before measuring.

.PARAMETER Duration
Time measured, such as 30s or 10m.

.PARAMETER MaxE2EP99
Criterion: the 99th percentile from request to event (or answer), such as 250ms.

.PARAMETER MaxFailedShare
Criterion: share of failed and refused requests together, 0.05 for 5 %.

.PARAMETER Verify
Check every answer against the rules.

.PARAMETER Report
Where to write the HTML report. Without it a new file among the temporary ones.

.PARAMETER Json
Where to write the report for machines; none without it.

.PARAMETER Open
Open the HTML report at the end.

.PARAMETER Program
A load generator that is built already.

.PARAMETER Extra
Further arguments for "loadtest run", as they are.

.EXAMPLE
./run.ps1 -Connections 1000 -Rate 5000 -Duration 10s -Open
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    [ValidatePattern('^wss?://')][string[]]$Url = @('ws://127.0.0.1:8080/ws'),
    [ValidatePattern('^https?://')][string[]]$Metrics = @(),
    [ValidateRange(1, 1000000)][int]$Connections = 5000,
    [ValidateRange(1, 10000)][int]$Inflight = 1,
    [ValidateRange(0.0, 10000000.0)][double]$Rate = 10000,
    [ValidatePattern('^(pairs|\w+=[0-9.]+(,\w+=[0-9.]+)*)$')][string]$Mix = 'allocate=1',
    [ValidateRange(1, 100000000)][int]$Signers = 1000,
    [ValidateRange(-1, 9000000000000000)][long]$SignerBase = -1,
    [ValidateRange(0, 100000)][int]$Subscribers = 0,
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$RampUp = '5s',
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Warmup = '5s',
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Duration = '60s',
    [ValidatePattern('^([0-9.]+(ms|s|m|h))?$')][string]$MaxE2EP99 = '',
    [ValidateRange(0.0, 1.0)][double]$MaxFailedShare = 0.05,
    [switch]$Verify,
    [string]$Report = '',
    [string]$Json = '',
    [switch]$Open,
    [string]$Program = '',
    [string[]]$Extra = @()
)
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')

if ($SignerBase -lt 0) { $SignerBase = Get-FreshSignerBase }
if (-not $Report) { $Report = Get-ReportPath -Name 'run' }

$arguments = @(
    'run',
    "--connections=$Connections",
    "--inflight=$Inflight",
    "--rate=$Rate",
    "--mix=$Mix",
    "--signers=$Signers",
    "--signer-base=$SignerBase",
    "--subscribers=$Subscribers",
    "--ramp-up=$RampUp",
    "--warmup=$Warmup",
    "--duration=$Duration",
    "--max-failed-share=$MaxFailedShare",
    "--html=$Report"
)
foreach ($u in $Url) { $arguments += "--url=$u" }
foreach ($m in $Metrics) { $arguments += "--metrics=$m" }
if ($MaxE2EP99) { $arguments += "--max-e2e-p99=$MaxE2EP99" }
if ($Verify) { $arguments += '--verify' }
if ($Json) { $arguments += "--json=$Json" }
$arguments += $Extra

Invoke-LoadTest -Program $Program -Arguments $arguments -Report $Report -Open:$Open
exit $LASTEXITCODE
