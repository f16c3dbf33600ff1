package boards

// whoIsLetIn is about credentials, the audit, and the files of TLS.
func whoIsLetIn() Row {
	return Row{"Who is let in?", []Panel{
		graph("Logins: each upgrade and ticket", "ops",
			"Credentials accepted, by their kind. 0 without --rights.", byLabel("logins_total", "credential")...),
		graph("Refused logins = a wrong key, or somebody tries", "ops",
			"Credentials not accepted, by why. The audit has who and from where.", byLabel("logins_refused_total", "reason")...),
		graph("Waiting at the bound = sockets opened, no login", "short",
			"Open sockets whose clients were not let in yet, and most of them on one node.",
			Query{sum(of("sockets_waiting"), instanceVariable), "{{instance}}"}, Query{highest(of("sockets_waiting_max")), "bound of a node"}),
		graph("Audit dropped not 0 = the log is slower than it", "ops",
			"Lines of the audit that were written, and those left out because the log did not keep up.",
			Query{sum(each(of("audit_lines_total"))), "written"}, Query{sum(each(of("audit_dropped_total"))), "dropped"}),
		graph("Private side refused = somebody without the key", "ops",
			"Requests to the admin address without the right key.", byInstance(each(of("admin_refused_total")))...),
		graph("Files: stale or failed not 0 = look at them", "short",
			"Nodes whose TLS files, or whose rights file, have changed to something that cannot be used; and changes of TLS files that were taken and could not be, since the nodes' start.",
			Query{sum(of("tls_files_stale")), "stale"}, Query{sum(of("tls_reload_failures_total")), "failed"}, Query{sum(of("tls_reloads_total")), "taken"},
			Query{sum(of("rights_reload_failed")), "rights stale"}),
		graph("Certificate: time left, 0 without TLS", "s",
			"Until the first certificate in force ends.",
			Query{orZero("min(" + of("tls_certificate_expires_timestamp_seconds") + " > 0) - time()"), "left"}),
	}}
}
