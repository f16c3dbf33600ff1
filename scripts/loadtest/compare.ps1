#Requires -Version 5.1
<#
.SYNOPSIS
Compares two builds or two settings of the gateway under the same load, in alternation.

.DESCRIPTION
Builds the load generator (or takes -Program), calls "loadtest compare" and
passes on its exit status: 0 every criterion was met, 1 one was not, 2 wrong
arguments, 130 interrupted. Each round starts A, loads and ends it, and then the
same with B; every second round goes the other way round. Each round has fresh
signers, so that none sees another's data where both use one store.

.EXAMPLE
./compare.ps1 -A 'bin/gateway serve --store sqlite:a.db --mode basic' -B 'bin/gateway serve --store sqlite:b.db' -Rounds 5
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    # Command of the first gateway, such as 'bin/gateway-old serve --store sqlite:a.db'.
    # It is not run by a shell: words are separated by spaces, and what holds spaces
    # stands between single quotes (Windows PowerShell loses double ones, so they are
    # refused here).
    [Parameter(Mandatory = $true)][ValidatePattern('^[^"]+$')][string]$A,
    # Command of the second gateway.
    [Parameter(Mandatory = $true)][ValidatePattern('^[^"]+$')][string]$B,
    # WebSocket address that both serve, one after the other.
    [ValidatePattern('^wss?://')][string]$Url = 'ws://127.0.0.1:8080/ws',
    # Address of their /metrics; without it the load generator's own default.
    [ValidatePattern('^https?://')][string[]]$Metrics = @(),
    # How often both are measured.
    [ValidateRange(1, 1000)][int]$Rounds = 5,
    # Clients.
    [ValidateRange(1, 1000000)][int]$Connections = 5000,
    # Requests a client sends in one burst.
    [ValidateRange(1, 10000)][int]$Inflight = 1,
    # Requests a second over all clients, latency counted from when each was due.
    # 0: as fast as answers come.
    [ValidateRange(0.0, 10000000.0)][double]$Rate = 0,
    # Signers that take turns; 1 is one hot signer.
    [ValidateRange(1, 100000000)][int]$Signers = 1000,
    # Number of the first signer of the first round; each round has fresh ones.
    # Without it one that no earlier run has used.
    [ValidateRange(-1, 9000000000000000)][long]$SignerBase = -1,
    # Time before measuring, in each run.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Warmup = '2s',
    # Time measured, in each run.
    [ValidatePattern('^[0-9.]+(ms|s|m|h)$')][string]$Duration = '10s',
    # Criterion: acknowledged requests a second of B over those of A, the median of
    # the rounds. 0: none.
    [ValidateRange(0.0, 1000.0)][double]$MinRatio = 0,
    # Criterion: 99th percentile of B over that of A, the median of the rounds.
    # 0: none.
    [ValidateRange(0.0, 1000.0)][double]$MaxP99Ratio = 0,
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
    # Further arguments for "loadtest compare", as they are.
    [string[]]$Extra = @()
)
$ErrorActionPreference = 'Stop'
. (Join-Path $PSScriptRoot 'common.ps1')

$arguments = @(
    "--a=$A",
    "--b=$B",
    "--url=$Url",
    "--rounds=$Rounds",
    "--connections=$Connections",
    "--inflight=$Inflight",
    "--rate=$Rate",
    "--signers=$Signers",
    "--warmup=$Warmup",
    "--duration=$Duration",
    "--min-ratio=$MinRatio",
    "--max-p99-ratio=$MaxP99Ratio"
)
foreach ($m in $Metrics) { $arguments += "--metrics=$m" }

Invoke-LoadTest -Command 'compare' -Arguments $arguments -SignerBase $SignerBase -AdminKey $AdminKey -Report $Report -Json $Json -Open:$Open -Program $Program -Extra $Extra
exit $LASTEXITCODE
