#Requires -Version 5.1
<#
.SYNOPSIS
Loads a running gateway and reports what it carries: the baseline.

.DESCRIPTION
Builds the load generator (or takes -Program), calls "loadtest run" and passes on
its exit status: 0 every criterion was met, 1 one was not, 2 wrong arguments,
130 interrupted.

.EXAMPLE
./run.ps1 -Connections 1000 -Rate 5000 -Duration 10s -Open
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    # WebSocket address of the gateway; several share the connections.
    [ValidatePattern('^wss?://')][string[]]$Url = @('ws://127.0.0.1:8080/ws'),
    # Address of the gateway's /metrics; without it the load generator's own default.
    [ValidatePattern('^https?://')][string[]]$Metrics = @(),
    # Clients.
    [ValidateRange(1, 1000000)][int]$Connections = 5000,
    # Requests a client sends in one burst.
    [ValidateRange(1, 10000)][int]$Inflight = 1,
    # Requests a second over all clients, latency counted from when each was due.
    # 0: as fast as answers come.
    [ValidateRange(0.0, 10000000.0)][double]$Rate = 10000,
    # Shares of the methods, such as 'allocate=6,markUsed=3,markRecyclable=1', or 'pairs':
    # each client marks what it was given as used before it asks for more.
    [ValidatePattern('^(pairs|\w+=[0-9.]+(,\w+=[0-9.]+)*)$')][string]$Mix = 'allocate=1',
    # Signers that take turns; 1 is one hot signer.
    [ValidateRange(1, 100000000)][int]$Signers = 1000,
    # Number of the first signer. Without it one that no earlier run has used.
    [ValidateRange(-1, 9000000000000000)][long]$SignerBase = -1,
    # Further clients that receive the events of all signers.
    [ValidateRange(0, 100000)][int]$Subscribers = 0,
    # Time over which the connections are opened.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$RampUp = '5s',
    # Time before measuring.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Warmup = '5s',
    # Time measured, such as 30s or 10m.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Duration = '60s',
    # Criterion: the 99th percentile from request to event (or answer), such as 250ms.
    [ValidatePattern('^([0-9.]+(ms|s|m|h))?$')][string]$MaxE2EP99 = '',
    # Criterion: share of failed and refused requests together, 0.05 for 5 %.
    [ValidateRange(0.0, 1.0)][double]$MaxFailedShare = 0.05,
    # Check every answer against the rules.
    [switch]$Verify,
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
    # Further arguments for "loadtest run", as they are.
    [string[]]$Extra = @()
)
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')

$arguments = @(
    "--connections=$Connections",
    "--inflight=$Inflight",
    "--rate=$Rate",
    "--mix=$Mix",
    "--signers=$Signers",
    "--subscribers=$Subscribers",
    "--ramp-up=$RampUp",
    "--warmup=$Warmup",
    "--duration=$Duration",
    "--max-failed-share=$MaxFailedShare"
)
foreach ($u in $Url) { $arguments += "--url=$u" }
foreach ($m in $Metrics) { $arguments += "--metrics=$m" }
if ($MaxE2EP99) { $arguments += "--max-e2e-p99=$MaxE2EP99" }
if ($Verify) { $arguments += '--verify' }

Invoke-LoadTest -Command 'run' -Arguments $arguments -SignerBase $SignerBase -AdminKey $AdminKey -Report $Report -Json $Json -Open:$Open -Program $Program -Extra $Extra
exit $LASTEXITCODE
