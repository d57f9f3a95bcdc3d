// The tests that check the oracle against the limiter's own algorithms. They have their
// own module, because the extension must build without the limiter's source.
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
