package daytonatest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// snapshot is something sandboxes are created from.
type snapshot struct {
	id, name, source string
	general          bool
	env              map[string]string // baked in
	created          time.Time
	image            string
}

func (s *Server) addSnapshots() {
	now := s.Now()
	s.snapshots = []*snapshot{{id: randomUUID(), name: defaultSnap, general: true, created: now, image: defaultSnap}}
	for _, name := range s.opts.Snapshots {
		s.snapshots = append(s.snapshots, &snapshot{id: randomUUID(), name: name, created: now, image: name})
	}
}

func (s *Server) snapshotByName(idOrName string) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, snap := range s.snapshots {
		if snap.name == idOrName || snap.id == idOrName {
			return snap
		}
	}
	return nil
}

// object is the snapshot as the service shows it.
func (snap *snapshot) object(s *Server) map[string]any {
	o := map[string]any{"id": snap.id, "organizationId": s.org, "general": snap.general, "name": snap.name, "imageName": snap.image, "state": "active",
		"size": 0.5, "entrypoint": nil, "cpu": 1, "gpu": 0, "mem": 1, "disk": 3, "errorReason": nil,
		"createdAt": snap.created.UTC().Format(timeFormat), "updatedAt": snap.created.UTC().Format(timeFormat), "lastUsedAt": nil,
		"sourceSandboxId": orNil(snap.source), "sandboxClass": "container"}
	if snap.general {
		delete(o, "organizationId")
	}
	return o
}

func (c *call) listSnapshots() {
	c.s.mu.Lock()
	items := []any{}
	for _, snap := range c.s.snapshots {
		if strings.Contains(snap.name, c.query("name")) {
			items = append(items, snap.object(c.s))
		}
	}
	c.s.mu.Unlock()
	c.json(http.StatusOK, map[string]any{"items": items, "total": len(items), "page": 1, "totalPages": 1})
}

func (c *call) getSnapshot() {
	if snap := c.s.snapshotByName(c.params["snapshot"]); snap != nil {
		c.json(http.StatusOK, snap.object(c.s))
		return
	}
	c.fail(http.StatusNotFound, "Snapshot "+c.params["snapshot"]+" not found")
}

func (c *call) createSnapshot() {
	var in struct{ Name, ImageName string }
	if !c.decode(&in) {
		return
	}
	if in.Name == "" || in.ImageName == "" || strings.HasSuffix(in.ImageName, ":latest") {
		c.fail(http.StatusBadRequest, "a snapshot needs a name and an image whose tag is not latest")
		return
	}
	c.addSnapshot(&snapshot{name: in.Name, image: in.ImageName}, func(snap *snapshot) any { return snap.object(c.s) })
}

// addSnapshot keeps a new snapshot and answers with what show returns.
func (c *call) addSnapshot(snap *snapshot, show func(*snapshot) any) {
	if c.s.snapshotByName(snap.name) != nil {
		c.fail(http.StatusConflict, "Snapshot with name "+snap.name+" already exists")
		return
	}
	snap.id, snap.created = randomUUID(), c.s.Now()
	c.s.mu.Lock()
	c.s.snapshots = append(c.s.snapshots, snap)
	body := show(snap)
	c.s.mu.Unlock()
	c.json(http.StatusOK, body)
}

func (c *call) deleteSnapshot() {
	c.s.mu.Lock()
	i := slices.IndexFunc(c.s.snapshots, func(x *snapshot) bool { return x.id == c.params["snapshot"] || x.name == c.params["snapshot"] })
	if i >= 0 && !c.s.snapshots[i].general {
		c.s.snapshots = slices.Delete(c.s.snapshots, i, i+1)
	}
	c.s.mu.Unlock()
	if i < 0 {
		c.fail(http.StatusNotFound, "Snapshot "+c.params["snapshot"]+" not found")
		return
	}
	c.empty(http.StatusOK)
}

// snapshotSandbox makes a snapshot of a sandbox. Its environment is baked in: a
// new sandbox has the variables although its own env is empty.
func (c *call) snapshotSandbox() {
	var in struct{ Name string }
	if !c.decode(&in) {
		return
	}
	if in.Name == "" {
		c.fail(http.StatusBadRequest, "name should not be empty")
		return
	}
	var sb *sandbox
	env := map[string]string{}
	c.with(func(t *sandbox) (int, any) {
		switch {
		case t.pending():
			return http.StatusConflict, inProgress
		case t.state != started && t.state != stopped:
			return http.StatusBadRequest, "Sandbox is not in a state that a snapshot can be made of"
		}
		sb = t
		maps.Copy(env, t.bakedEnv)
		maps.Copy(env, t.env)
		return 0, nil
	})
	if sb == nil {
		return
	}
	c.addSnapshot(&snapshot{name: in.Name, image: "snapshot-of-" + sb.id, source: sb.id, env: env}, func(*snapshot) any {
		c.passing(sb, snapshotting)
		return sb.shown(c.op, false)
	})
}
