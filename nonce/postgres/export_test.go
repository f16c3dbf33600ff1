package postgres

import (
	"maps"

	"noncegate/nonce"
)

// CommitVariants are the texts of all commit statements there can be.
func CommitVariants() []string {
	texts := []string{commitText(partCheck)}
	for _, how := range []parts{0, partSkip, partLocked} {
		for _, runs := range []parts{partRun, partRun | partOne, partRun | partHolder, partRun | partOne | partHolder} {
			texts = append(texts, commitText(runs|how), commitText(runs|how|partRequest), commitText(runs|how|partRequest|partKnown))
		}
		for rest := range partRun {
			if rest&(partWrite|partLocked|partSkip) == 0 && (rest&partKnown == 0 || rest&partRequest != 0) {
				texts = append(texts, commitText(partWrite|how|rest))
			}
		}
	}
	return texts
}

// FlushVariants are the texts of all flush statements there can be.
func FlushVariants() []string {
	var texts []string
	for rest := range partRun {
		if rest&(partWrite|partLocked|partCheck) == partWrite {
			texts = append(texts, flushText(rest))
		}
	}
	return texts
}

// FlushOIDs are the types of the parameters of each.
var FlushOIDs = flushOIDs

// CommitOIDs are the types of the parameters of each.
var CommitOIDs = commitOIDs

// Statements are the texts of all others.
func Statements() []string {
	var figures []string
	for filter := nonce.AllSigners; filter <= nonce.RepeatSigners; filter++ {
		figures = append(figures, figuresText(filter, false), figuresText(filter, true))
	}
	return append(figures,
		createSigners, acquireSigners, releaseSigners,
		loadSigners, loadReleased, loadDue, loadRequests, loadRequestRows, loadRows,
		summaryText, listAll, listHeld, listReleased, listUnknown, listConsumed, listRequests, dueText, pruneText,
		prunableText, consumedOwned, consumedLocked,
		reserveText, enterText, returnText, loseLocks, loseText, versionsText, copySigner, copyRows, copyRequests, enteredText, walkText,
		clusterText, clusterLock, switchText, acceptText, countsText, totalText, rememberNames, namesOf,
	)
}

// ListRequests is the one among them that looks for request ids by their nonces.
const ListRequests = listRequests

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
