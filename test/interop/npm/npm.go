// Package npm names, by a lock file with checksums, what tests here use of npm's packages.
package npm

import (
	"context"
	"embed"

	"noncegate/test/lab/npmtest"
)

//go:embed package.json package-lock.json .npmrc
var files embed.FS

// Folder is a folder whose node_modules has viem, ethers and, on Linux on x86-64, Foundry's cast.
func Folder(ctx context.Context) (string, error) { return npmtest.Folder(ctx, "wallets", files) }
