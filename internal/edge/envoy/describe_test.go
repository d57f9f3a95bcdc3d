package envoy

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

var update = flag.Bool("update", false, "write services.binpb")

// needs collects the files of what services use, and of each file which messages and enums.
type needs map[protoreflect.FileDescriptor]map[protoreflect.Name]bool

func (n needs) add(d protoreflect.Descriptor) {
	for d.Parent() != d.ParentFile() {
		d = d.Parent()
	}
	f := d.ParentFile()
	if n[f] == nil {
		n[f] = map[protoreflect.Name]bool{}
	}
	if n[f][d.Name()] {
		return
	}
	n[f][d.Name()] = true
	switch d := d.(type) {
	case protoreflect.ServiceDescriptor:
		for i := range d.Methods().Len() {
			n.add(d.Methods().Get(i).Input())
			n.add(d.Methods().Get(i).Output())
		}
	case protoreflect.MessageDescriptor:
		n.addFields(d)
	}
}

func (n needs) addFields(m protoreflect.MessageDescriptor) {
	for i := range m.Fields().Len() {
		switch f := m.Fields().Get(i); {
		case f.Message() != nil:
			n.add(f.Message())
		case f.Enum() != nil:
			n.add(f.Enum())
		}
	}
	for i := range m.Messages().Len() {
		n.addFields(m.Messages().Get(i))
	}
}

// file returns what is needed of a file, without options: validation and the like.
func (n needs) file(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	p := protodesc.ToFileDescriptorProto(f)
	p.Options, p.Extension, p.PublicDependency, p.WeakDependency = nil, nil, nil, nil
	p.MessageType = slices.DeleteFunc(p.MessageType, func(m *descriptorpb.DescriptorProto) bool { return !n[f][protoreflect.Name(m.GetName())] })
	p.EnumType = slices.DeleteFunc(p.EnumType, func(e *descriptorpb.EnumDescriptorProto) bool { return !n[f][protoreflect.Name(e.GetName())] })
	p.Service = slices.DeleteFunc(p.Service, func(s *descriptorpb.ServiceDescriptorProto) bool { return !n[f][protoreflect.Name(s.GetName())] })
	p.Dependency = slices.DeleteFunc(p.Dependency, func(path string) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Keys(n)), func(f protoreflect.FileDescriptor) bool { return f.Path() == path })
	})
	for _, m := range p.MessageType {
		plain(m)
	}
	for _, e := range p.EnumType {
		plainEnum(e)
	}
	for _, s := range p.Service {
		s.Options = nil
		for _, m := range s.Method {
			m.Options = nil
		}
	}
	return p
}

func plain(m *descriptorpb.DescriptorProto) {
	if m.Options != nil {
		if m.Options = (&descriptorpb.MessageOptions{MapEntry: m.Options.MapEntry}); m.Options.MapEntry == nil {
			m.Options = nil
		}
	}
	for _, f := range m.Field {
		f.Options = nil
	}
	for _, o := range m.OneofDecl {
		o.Options = nil
	}
	for _, e := range m.EnumType {
		plainEnum(e)
	}
	for _, nested := range m.NestedType {
		plain(nested)
	}
}

func plainEnum(e *descriptorpb.EnumDescriptorProto) {
	e.Options = nil
	for _, v := range e.Value {
		v.Options = nil
	}
}

// The descriptions are those of Envoy's own files, as far as the services need them.
func TestDescriptions(t *testing.T) {
	n := needs{}
	n.add(ratelimit.File_envoy_service_ratelimit_v3_rls_proto.Services().ByName("RateLimitService"))
	n.add(auth.File_envoy_service_auth_v3_external_auth_proto.Services().ByName("Authorization"))
	files := slices.SortedFunc(maps.Keys(n), func(a, b protoreflect.FileDescriptor) int { return cmp.Compare(a.Path(), b.Path()) })
	want := &descriptorpb.FileDescriptorSet{}
	for _, f := range files {
		want.File = append(want.File, n.file(f))
	}
	if *update {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("services.binpb", b, 0o644))
	}
	b, err := os.ReadFile("services.binpb")
	require.NoError(t, err)
	got := &descriptorpb.FileDescriptorSet{}
	require.NoError(t, proto.Unmarshal(b, got))
	require.True(t, proto.Equal(want, got), "services.binpb differs from go-control-plane; run this test with -update")
	for _, name := range []protoreflect.FullName{"envoy.service.ratelimit.v3.RateLimitService", "envoy.service.auth.v3.Authorization", "grpc.health.v1.Health"} {
		d, err := newResolver().FindDescriptorByName(name)
		require.NoError(t, err)
		require.Equal(t, name, d.FullName())
	}
}
