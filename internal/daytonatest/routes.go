package daytonatest

import "strings"

func (s *Server) allRoutes() []route {
	at := func(g group, method, path string, op Op, handle func(*call)) route {
		return route{method: method, segments: strings.Split(strings.Trim(path, "/"), "/"), op: op, group: g, handle: handle}
	}
	ctl := func(method, path string, op Op, handle func(*call)) route {
		return at(control, method, path, op, handle)
	}
	box := func(method, path string, op Op, handle func(*call)) route {
		return at(toolbox, method, path, op, handle)
	}
	streaming := func(r route) route { r.streams = true; return r }
	socket := func(r route) route { r.websocket = true; return r }

	routes := []route{
		ctl("GET", "config", OpConfig, (*call).config),
		ctl("GET", "api-keys/current", OpCurrentKey, (*call).currentKey),
		ctl("POST", "sandbox", OpCreate, (*call).create),
		ctl("GET", "sandbox", OpList, (*call).list),
		ctl("GET", "sandbox/paginated", OpListPaginated, (*call).paginated),
		ctl("GET", "sandbox/{id}", OpGet, (*call).get),
		ctl("DELETE", "sandbox/{id}", OpDelete, (*call).delete),
		ctl("POST", "sandbox/{id}/start", OpStart, (*call).start),
		ctl("POST", "sandbox/{id}/stop", OpStop, (*call).stop),
		ctl("POST", "sandbox/{id}/pause", OpPause, (*call).pauseSandbox),
		ctl("POST", "sandbox/{id}/archive", OpArchive, (*call).archive),
		ctl("POST", "sandbox/{id}/recover", OpRecover, (*call).recover),
		ctl("POST", "sandbox/{id}/resize", OpResize, (*call).resize),
		ctl("POST", "sandbox/{id}/backup", OpBackup, (*call).backup),
		ctl("POST", "sandbox/{id}/snapshot", OpSnapshotSandbox, (*call).snapshotSandbox),
		ctl("POST", "sandbox/{id}/fork", OpFork, (*call).fork),
		ctl("PUT", "sandbox/{id}/labels", OpLabels, (*call).labels),
		ctl("POST", "sandbox/{id}/public/{public}", OpPublic, (*call).setPublic),
		ctl("POST", "sandbox/{id}/autostop/{n}", OpAutoStop, interval(0, func(sb *sandbox) *int { return &sb.autoStop })),
		ctl("POST", "sandbox/{id}/autoarchive/{n}", OpAutoArchive, interval(0, func(sb *sandbox) *int { return &sb.autoArchive })),
		ctl("POST", "sandbox/{id}/autodelete/{n}", OpAutoDelete, interval(-1, func(sb *sandbox) *int { return &sb.autoDelete })),
		ctl("POST", "sandbox/{id}/network-settings", OpNetwork, (*call).network),
		ctl("POST", "sandbox/{id}/last-activity", OpLastActivity, (*call).lastActivity),
		ctl("GET", "sandbox/{id}/ports/{port}/preview-url", OpPreview, (*call).previewURL),
		ctl("GET", "sandbox/{id}/ports/{port}/signed-preview-url", OpSignedPreview, (*call).signedPreviewURL),
		ctl("POST", "sandbox/{id}/ports/{port}/signed-preview-url/{token}/expire", OpExpirePreview, (*call).expirePreview),
		ctl("GET", "sandbox/{id}/build-logs-url", OpBuildLogsURL, (*call).buildLogsURL),
		ctl("GET", "sandbox/{id}/toolbox-proxy-url", OpToolboxURL, (*call).toolboxURL),
		ctl("GET", "sandbox/{id}/organization", OpOrganizationOf, (*call).organization),
		ctl("GET", "snapshots", OpSnapshots, (*call).listSnapshots),
		ctl("POST", "snapshots", OpSnapshotCreate, (*call).createSnapshot),
		ctl("GET", "snapshots/{snapshot}", OpSnapshot, (*call).getSnapshot),
		ctl("DELETE", "snapshots/{snapshot}", OpSnapshotDelete, (*call).deleteSnapshot),
		at(public, "GET", "build-logs/{token}", OpBuildLogs, (*call).buildLogs),

		box("POST", "process/execute", OpExecute, (*call).execute),
		box("POST", "process/session", OpSessionCreate, (*call).createSession),
		box("GET", "process/session", OpSessionList, (*call).listSessions),
		box("GET", "process/session/{session}", OpSessionGet, (*call).getSession),
		box("DELETE", "process/session/{session}", OpSessionDelete, (*call).deleteSession),
		box("POST", "process/session/{session}/exec", OpSessionExec, (*call).sessionExec),
		box("GET", "process/session/{session}/command/{command}", OpSessionCommand, (*call).sessionCommand),
		box("GET", "process/session/{session}/command/{command}/logs", OpSessionLogs, (*call).sessionLogs),
		box("POST", "process/session/{session}/command/{command}/input", OpSessionInput, (*call).sessionInput),
		box("POST", "process/pty", OpPTYCreate, (*call).createPTY),
		box("GET", "process/pty", OpPTYList, (*call).listPTYs),
		box("GET", "process/pty/{pty}", OpPTYGet, (*call).getPTY),
		box("DELETE", "process/pty/{pty}", OpPTYDelete, (*call).deletePTY),
		box("POST", "process/pty/{pty}/resize", OpPTYResize, (*call).resizePTY),
		socket(box("GET", "process/pty/{pty}/connect", OpPTYConnect, (*call).connectPTY)),
		box("GET", "files", OpFileList, (*call).listFiles),
		box("DELETE", "files", OpFileDelete, (*call).deleteFile),
		box("GET", "files/info", OpFileInfo, (*call).fileInfo),
		box("GET", "files/download", OpFileDownload, (*call).download),
		box("POST", "files/bulk-download", OpFileBulkDown, (*call).bulkDownload),
		streaming(box("POST", "files/bulk-upload", OpFileBulkUp, (*call).bulkUpload)),
		box("POST", "files/folder", OpFileFolder, (*call).folder),
		box("POST", "files/move", OpFileMove, (*call).moveFile),
		box("POST", "files/permissions", OpFilePerms, (*call).permissions),
		box("GET", "files/search", OpFileSearch, (*call).searchFiles),
		box("GET", "files/find", OpFileFind, (*call).findInFiles),
		box("POST", "files/replace", OpFileReplace, (*call).replaceInFiles),
		box("GET", "port", OpPorts, (*call).ports),
		box("GET", "port/{port}/in-use", OpPortInUse, (*call).portInUse),
		box("GET", "work-dir", OpWorkDir, (*call).workDir),
		box("GET", "user-home-dir", OpHomeDir, (*call).homeDir),
		box("GET", "version", OpVersion, (*call).version),
	}
	if s.current() {
		routes = append([]route{
			ctl("POST", "sandbox/{id}/autopause/{n}", OpAutoPause, interval(0, func(sb *sandbox) *int { return &sb.autoPause })),
			ctl("POST", "sandbox/{id}/ttl/{n}", OpTTL, interval(0, func(sb *sandbox) *int { return &sb.ttl })),
			streaming(box("POST", "files/upload-v2", OpFileUploadV2, (*call).upload)),
			socket(box("GET", "process/pty/create-connect", OpPTYOpen, (*call).openPTY)),
			box("POST", "process/code-run", OpCodeRun, (*call).codeRun),
			box("POST", "env", OpEnv, (*call).updateEnv),
		}, routes...)
	} else {
		routes = append(routes, streaming(box("POST", "files/upload", OpFileUpload, (*call).upload)))
	}
	return routes
}
