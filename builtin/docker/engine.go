package docker

import (
	"context"
	"io"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// engine is the part of the engine's API that this package uses. *client.Client
// implements it.
type engine interface {
	DaemonHost() string
	ServerVersion(ctx context.Context) (types.Version, error)
	Info(ctx context.Context) (system.Info, error)

	ContainerAttach(ctx context.Context, container string, opts container.AttachOptions) (types.HijackedResponse, error)
	ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, net *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerExecAttach(ctx context.Context, exec string, opts container.ExecAttachOptions) (types.HijackedResponse, error)
	ContainerExecCreate(ctx context.Context, container string, opts container.ExecOptions) (container.ExecCreateResponse, error)
	ContainerExecInspect(ctx context.Context, exec string) (container.ExecInspect, error)
	ContainerExecResize(ctx context.Context, exec string, opts container.ResizeOptions) error
	ContainerInspect(ctx context.Context, container string) (container.InspectResponse, error)
	ContainerKill(ctx context.Context, container, signal string) error
	ContainerList(ctx context.Context, opts container.ListOptions) ([]container.Summary, error)
	ContainerLogs(ctx context.Context, container string, opts container.LogsOptions) (io.ReadCloser, error)
	ContainerPause(ctx context.Context, container string) error
	ContainerRemove(ctx context.Context, container string, opts container.RemoveOptions) error
	ContainerStart(ctx context.Context, container string, opts container.StartOptions) error
	ContainerStatPath(ctx context.Context, container, path string) (container.PathStat, error)
	ContainerUnpause(ctx context.Context, container string) error
	CopyFromContainer(ctx context.Context, container, path string) (io.ReadCloser, container.PathStat, error)
	CopyToContainer(ctx context.Context, container, path string, content io.Reader, opts container.CopyToContainerOptions) error

	ImageImport(ctx context.Context, source image.ImportSource, ref string, opts image.ImportOptions) (io.ReadCloser, error)
	ImageInspect(ctx context.Context, image string, opts ...client.ImageInspectOption) (image.InspectResponse, error)
	ImagePull(ctx context.Context, ref string, opts image.PullOptions) (io.ReadCloser, error)

	NetworkCreate(ctx context.Context, name string, opts network.CreateOptions) (network.CreateResponse, error)
	NetworkList(ctx context.Context, opts network.ListOptions) ([]network.Summary, error)
	NetworkRemove(ctx context.Context, network string) error

	VolumeCreate(ctx context.Context, opts volume.CreateOptions) (volume.Volume, error)
	VolumeInspect(ctx context.Context, volume string) (volume.Volume, error)
	VolumeList(ctx context.Context, opts volume.ListOptions) (volume.ListResponse, error)
	VolumeRemove(ctx context.Context, volume string, force bool) error
}

var _ engine = (*client.Client)(nil)
