// The tests that hold the oracle against the limiter's own algorithms. A module of its
// own, because the extension must build where the limiter's source is not at hand.
module github.com/weir-edge/weir/loadtest/xk6-weir/proof

go 1.26.7

require (
	github.com/stretchr/testify v1.12.1
	github.com/weir-edge/weir v0.0.0
	github.com/weir-edge/weir/loadtest/xk6-weir v0.0.0
	pgregory.net/rapid v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace (
	github.com/weir-edge/weir => ../../..
	github.com/weir-edge/weir/loadtest/xk6-weir => ..
)
