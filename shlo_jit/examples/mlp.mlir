// A multi-layer perceptron: two hidden layers with tanh, softmax over ten classes.
//
// Lowered by JAX 0.10.2 from
//
//     def mlp(x, w1, b1, w2, b2, w3, b3):
//         def dense(x, w, b):
//             return x @ w / np.float32(len(w) ** 0.5) + b
//         h = jnp.tanh(dense(x, w1, b1))
//         h = jnp.tanh(dense(h, w2, b2))
//         return jax.nn.softmax(dense(h, w3, b3))

module @jit_mlp attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64x256xf32>, %arg1: tensor<256x512xf32>, %arg2: tensor<512xf32>, %arg3: tensor<512x512xf32>, %arg4: tensor<512xf32>, %arg5: tensor<512x10xf32>, %arg6: tensor<10xf32>) -> (tensor<64x10xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x256xf32>, tensor<256x512xf32>) -> tensor<64x512xf32>
    %cst = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<64x512xf32>
    %2 = stablehlo.divide %0, %1 : tensor<64x512xf32>
    %3 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<512xf32>) -> tensor<1x512xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<1x512xf32>) -> tensor<64x512xf32>
    %5 = stablehlo.add %2, %4 : tensor<64x512xf32>
    %6 = stablehlo.tanh %5 : tensor<64x512xf32>
    %7 = stablehlo.dot_general %6, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x512xf32>, tensor<512x512xf32>) -> tensor<64x512xf32>
    %cst_0 = stablehlo.constant dense<22.6274166> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<64x512xf32>
    %9 = stablehlo.divide %7, %8 : tensor<64x512xf32>
    %10 = stablehlo.broadcast_in_dim %arg4, dims = [1] : (tensor<512xf32>) -> tensor<1x512xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1] : (tensor<1x512xf32>) -> tensor<64x512xf32>
    %12 = stablehlo.add %9, %11 : tensor<64x512xf32>
    %13 = stablehlo.tanh %12 : tensor<64x512xf32>
    %14 = stablehlo.dot_general %13, %arg5, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x512xf32>, tensor<512x10xf32>) -> tensor<64x10xf32>
    %cst_1 = stablehlo.constant dense<22.6274166> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<64x10xf32>
    %16 = stablehlo.divide %14, %15 : tensor<64x10xf32>
    %17 = stablehlo.broadcast_in_dim %arg6, dims = [1] : (tensor<10xf32>) -> tensor<1x10xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1] : (tensor<1x10xf32>) -> tensor<64x10xf32>
    %19 = stablehlo.add %16, %18 : tensor<64x10xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %20 = stablehlo.reduce(%19 init: %cst_2) applies stablehlo.maximum across dimensions = [1] : (tensor<64x10xf32>, tensor<f32>) -> tensor<64xf32>
    %cst_3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %22 = stablehlo.maximum %21, %20 : tensor<64xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0] : (tensor<64xf32>) -> tensor<64x1xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1] : (tensor<64x1xf32>) -> tensor<64x10xf32>
    %25 = stablehlo.subtract %19, %24 : tensor<64x10xf32>
    %26 = stablehlo.exponential %25 : tensor<64x10xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.reduce(%26 init: %cst_4) applies stablehlo.add across dimensions = [1] : (tensor<64x10xf32>, tensor<f32>) -> tensor<64xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0] : (tensor<64xf32>) -> tensor<64x1xf32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [0, 1] : (tensor<64x1xf32>) -> tensor<64x10xf32>
    %30 = stablehlo.divide %26, %29 : tensor<64x10xf32>
    return %30 : tensor<64x10xf32>
  }
}
