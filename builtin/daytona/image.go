package daytona

import (
	"math"
	"regexp"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// snapshotPrefix begins the image of a manifest that names a snapshot of the
// service. Anything else is a container image, which the service builds from.
const snapshotPrefix = "snapshot:"

// An image's name becomes a line of a Dockerfile, so it may hold nothing that
// could end it.
var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$`)

var snapshotName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$`)

// source decides what a sandbox is made from, and with how much.
func (p *Provider) source(req provider.CreateRequest, out *createSandbox) (unenforced []string, err error) {
	if name, ok := strings.CutPrefix(req.Image, snapshotPrefix); ok || req.Image == "" {
		if req.Image == "" {
			name = p.opts.Snapshot
		}
		if (ok || name != "") && !snapshotName.MatchString(name) {
			return nil, problem(provider.InvalidArgument, "create", "", "the snapshot's name is malformed").remedy("use " + snapshotPrefix + "NAME")
		}
		out.snapshot = name
	} else {
		if !imageName.MatchString(req.Image) {
			return nil, problem(provider.InvalidArgument, "create", "", "the image's name is malformed").remedy("use NAME:TAG, NAME@DIGEST, or " + snapshotPrefix + "NAME for a snapshot")
		}
		out.image = req.Image
	}
	limits := []struct {
		name  string
		given float64
		unit  float64
		to    *int64
	}{
		{"resources.cpus", req.Resources.CPUs, 1, &out.cpu},
		{"resources.memoryMiB", float64(req.Resources.MemoryMiB), 1024, &out.memory},
		{"resources.diskMiB", float64(req.Resources.DiskMiB), 1024, &out.disk},
	}
	for _, l := range limits {
		switch whole := math.Ceil(l.given / l.unit); {
		case l.given == 0:
		case out.image == "":
			unenforced = append(unenforced, l.name+" (a snapshot brings its own)")
		case whole > 1<<20:
			return nil, problem(provider.InvalidArgument, "create", "", l.name+" is more than any machine has")
		default:
			*l.to = int64(whole)
			if whole*l.unit != l.given {
				unenforced = append(unenforced, l.name+" (the service counts in whole cores and GiB)")
			}
		}
	}
	if req.TTL > 0 {
		unenforced = append(unenforced, "lifetime.ttl (the service counts in minutes; the host enforces it)")
	}
	return unenforced, nil
}
