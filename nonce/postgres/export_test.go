package postgres

import "maps"

// CommitVariants are the texts of all commit statements there can be.
func CommitVariants() []string {
	texts := []string{commitText(partCheck)}
	for _, how := range []parts{0, partSkip, partLocked} {
		texts = append(texts, commitText(partRun|how), commitText(partRun|partOne|how))
		for rest := range partRun {
			if rest&(partWrite|partLocked|partSkip) == 0 {
				texts = append(texts, commitText(partWrite|how|rest))
			}
		}
	}
	return texts
}

// CommitOIDs are the types of the parameters of each.
var CommitOIDs = commitOIDs

// Statements are the texts of all others that take parameters.
func Statements() []string {
	return []string{
		createSigners, acquireSigners, releaseSigners,
		loadSigners, loadReleased, loadDue, loadRequests, loadRequestRows, loadRows,
		summaryText, listAll, listHeld, listReleased, listConsumed, listRequests, dueText, pruneText,
		prunableText, consumedOwned, consumedLocked,
	}
}

// RuntimeParams are the settings of every connection.
func RuntimeParams() map[string]string { return maps.Clone(runtimeParams()) }

// MaxConns is the size of the pool for a URL.
func MaxConns(url string, cfg Config) (int32, error) {
	pc, err := poolConfig(url, cfg)
	if err != nil {
		return 0, err
	}
	return pc.MaxConns, nil
}
