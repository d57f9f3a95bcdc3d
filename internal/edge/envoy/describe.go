package envoy

import (
	_ "embed"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	oldreflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// descriptions is a FileDescriptorSet of the services and of the messages that they need, taken
// from go-control-plane by go test ./internal/edge/envoy -run TestDescriptions -update.
//
//go:embed services.binpb
var descriptions []byte

// registerReflection lets clients such as grpcurl ask for the descriptions of all services.
func registerReflection(s *grpc.Server) {
	options := reflection.ServerOptions{Services: s, DescriptorResolver: newResolver()}
	reflectionpb.RegisterServerReflectionServer(s, reflection.NewServerV1(options))
	oldreflectionpb.RegisterServerReflectionServer(s, reflection.NewServer(options))
}

// resolver finds what Envoy's services need, and then what is registered, such as health. Envoy's
// messages are not registered, because a test that has go-control-plane registers them too.
type resolver struct{ own *protoregistry.Files }

func newResolver() resolver {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(descriptions, &set); err != nil {
		panic(err) // the file is part of the program
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		panic(err)
	}
	return resolver{files}
}

// FindFileByPath implements protodesc.Resolver.
func (r resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := r.own.FindFileByPath(path); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (r resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := r.own.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
