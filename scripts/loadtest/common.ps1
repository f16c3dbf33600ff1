<#
.SYNOPSIS
What the load test scripts share: it finds or builds the Go program, runs it, and says where its report is.

.DESCRIPTION
To be dot-sourced. Everything that is decided is decided by the Go program; its
exit status is left in $LASTEXITCODE: 0 every criterion was met, 1 one was not,
2 wrong arguments, 130 interrupted.
#>
Set-StrictMode -Version Latest

# A number that no earlier run began its signers with: another each second, a
# million signers apart, and exact in every reader of JSON.
function Get-FreshSignerBase {
    [DateTimeOffset]::UtcNow.ToUnixTimeSeconds() * 1000000
}

# A name for a report in the folder for temporary files.
function Get-ReportPath {
    param([Parameter(Mandatory = $true)][string]$Name)
    $file = 'noncegate-{0}-{1}.html' -f $Name, (Get-Date).ToString('yyyyMMdd-HHmmss')
    Join-Path ([System.IO.Path]::GetTempPath()) $file
}

# The load generator: the program given, else one built from this tree.
function Get-LoadTest {
    param([string]$Program)
    if ($Program) {
        return (Resolve-Path -LiteralPath $Program).ProviderPath
    }
    $name = 'loadtest'
    if ($env:OS -eq 'Windows_NT') { $name = 'loadtest.exe' }
    $root = Split-Path -Parent (Split-Path -Parent $PSScriptRoot)
    $path = Join-Path (Join-Path $root 'bin') $name
    Push-Location -LiteralPath $root
    try {
        & go build -o $path ./scripts/loadtest | Out-Host
        if ($LASTEXITCODE -ne 0) { throw "go build ended with status $LASTEXITCODE" }
    } finally {
        Pop-Location
    }
    $path
}

# Runs a command of the load generator with its own arguments and those that all
# have, and says where its report is.
function Invoke-LoadTest {
    param(
        [Parameter(Mandatory = $true)][string]$Command,
        [Parameter(Mandatory = $true)][string[]]$Arguments,
        [long]$SignerBase = -1,
        [string]$AdminKey,
        [string]$Report,
        [string]$Json,
        [switch]$Open,
        [string]$Program,
        [string[]]$Extra = @()
    )
    if ($SignerBase -lt 0) { $SignerBase = Get-FreshSignerBase }
    if (-not $Report) { $Report = Get-ReportPath -Name $Command }
    $all = @($Command) + $Arguments + @("--signer-base=$SignerBase", "--html=$Report")
    if ($Json) { $all += "--json=$Json" }
    $all += $Extra
    # By the environment: every program on the machine may read the arguments of another one.
    if ($AdminKey) { $env:NONCEGATE_ADMIN_KEY = $AdminKey }
    # A status other than 0 is an answer here, not an error of the script.
    $PSNativeCommandUseErrorActionPreference = $false
    $loadtest = Get-LoadTest -Program $Program
    & $loadtest @all
    if (-not (Test-Path -LiteralPath $Report)) { return }
    if ((Get-Item -LiteralPath $Report).Length -eq 0) { return } # there was nothing to report
    Write-Host "Report: $Report"
    if (-not $Open) { return }
    try {
        Invoke-Item -LiteralPath $Report
    } catch {
        Write-Warning "The report could not be opened: $_"
    }
}
