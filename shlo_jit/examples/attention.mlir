// Causal attention of eight heads with its projections and residual.
//
// Lowered by JAX 0.10.2 from
//
//     def attention(x, wq, wk, wv, wo):
//         length, width = x.shape
//         scale = np.float32(width ** -0.5)
//         q, k, v = ((x @ w * scale).reshape(length, 8, width // 8) for w in (wq, wk, wv))
//         scores = jnp.einsum("qhd,khd->hqk", q, k) / np.float32((width // 8) ** 0.5)
//         scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
//         mixed = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores), v)
//         return x + mixed.reshape(length, width) @ wo * scale

module @jit_attention attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<128x256xf32>, %arg1: tensor<256x256xf32>, %arg2: tensor<256x256xf32>, %arg3: tensor<256x256xf32>, %arg4: tensor<256x256xf32>) -> (tensor<128x256xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x256xf32>, tensor<256x256xf32>) -> tensor<128x256xf32>
    %cst = stablehlo.constant dense<6.250000e-02> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<128x256xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<128x256xf32>
    %3 = stablehlo.reshape %2 : (tensor<128x256xf32>) -> tensor<128x8x32xf32>
    %4 = stablehlo.dot_general %arg0, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x256xf32>, tensor<256x256xf32>) -> tensor<128x256xf32>
    %cst_0 = stablehlo.constant dense<6.250000e-02> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<128x256xf32>
    %6 = stablehlo.multiply %4, %5 : tensor<128x256xf32>
    %7 = stablehlo.reshape %6 : (tensor<128x256xf32>) -> tensor<128x8x32xf32>
    %8 = stablehlo.dot_general %arg0, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x256xf32>, tensor<256x256xf32>) -> tensor<128x256xf32>
    %cst_1 = stablehlo.constant dense<6.250000e-02> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<128x256xf32>
    %10 = stablehlo.multiply %8, %9 : tensor<128x256xf32>
    %11 = stablehlo.reshape %10 : (tensor<128x256xf32>) -> tensor<128x8x32xf32>
    %12 = stablehlo.dot_general %3, %7, batching_dims = [1] x [1], contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<128x8x32xf32>, tensor<128x8x32xf32>) -> tensor<8x128x128xf32>
    %cst_2 = stablehlo.constant dense<5.65685415> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<8x128x128xf32>
    %14 = stablehlo.divide %12, %13 : tensor<8x128x128xf32>
    %c = stablehlo.constant dense<true> : tensor<i1>
    %15 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %16 = call @tril(%15) : (tensor<128x128xi1>) -> tensor<128x128xi1>
    %cst_3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %17 = call @_where(%16, %14, %cst_3) : (tensor<128x128xi1>, tensor<8x128x128xf32>, tensor<f32>) -> tensor<8x128x128xf32>
    %cst_4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %18 = stablehlo.reduce(%17 init: %cst_4) applies stablehlo.maximum across dimensions = [2] : (tensor<8x128x128xf32>, tensor<f32>) -> tensor<8x128xf32>
    %cst_5 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<8x128xf32>
    %20 = stablehlo.maximum %19, %18 : tensor<8x128xf32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [0, 1] : (tensor<8x128xf32>) -> tensor<8x128x1xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2] : (tensor<8x128x1xf32>) -> tensor<8x128x128xf32>
    %23 = stablehlo.subtract %17, %22 : tensor<8x128x128xf32>
    %24 = stablehlo.exponential %23 : tensor<8x128x128xf32>
    %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %25 = stablehlo.reduce(%24 init: %cst_6) applies stablehlo.add across dimensions = [2] : (tensor<8x128x128xf32>, tensor<f32>) -> tensor<8x128xf32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0, 1] : (tensor<8x128xf32>) -> tensor<8x128x1xf32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [0, 1, 2] : (tensor<8x128x1xf32>) -> tensor<8x128x128xf32>
    %28 = stablehlo.divide %24, %27 : tensor<8x128x128xf32>
    %29 = stablehlo.dot_general %11, %28, batching_dims = [1] x [0], contracting_dims = [0] x [2], precision = [DEFAULT, DEFAULT] : (tensor<128x8x32xf32>, tensor<8x128x128xf32>) -> tensor<8x32x128xf32>
    %30 = stablehlo.transpose %29, dims = [2, 0, 1] : (tensor<8x32x128xf32>) -> tensor<128x8x32xf32>
    %31 = stablehlo.reshape %30 : (tensor<128x8x32xf32>) -> tensor<128x256xf32>
    %32 = stablehlo.dot_general %31, %arg4, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x256xf32>, tensor<256x256xf32>) -> tensor<128x256xf32>
    %cst_7 = stablehlo.constant dense<6.250000e-02> : tensor<f32>
    %33 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<128x256xf32>
    %34 = stablehlo.multiply %32, %33 : tensor<128x256xf32>
    %35 = stablehlo.add %arg0, %34 : tensor<128x256xf32>
    return %35 : tensor<128x256xf32>
  }
  func.func private @tril(%arg0: tensor<128x128xi1>) -> tensor<128x128xi1> {
    %0 = stablehlo.iota dim = 0 : tensor<128x128xi32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<128x128xi32>
    %2 = stablehlo.add %0, %1 : tensor<128x128xi32>
    %3 = stablehlo.iota dim = 1 : tensor<128x128xi32>
    %4 = stablehlo.compare GE, %2, %3, SIGNED : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
    %c_0 = stablehlo.constant dense<false> : tensor<i1>
    %5 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i1>) -> tensor<128x128xi1>
    %6 = stablehlo.select %4, %arg0, %5 : tensor<128x128xi1>, tensor<128x128xi1>
    return %6 : tensor<128x128xi1>
  }
  func.func private @_where(%arg0: tensor<128x128xi1>, %arg1: tensor<8x128x128xf32>, %arg2: tensor<f32>) -> tensor<8x128x128xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<128x128xi1>) -> tensor<8x128x128xi1>
    %2 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<8x128x128xf32>
    %3 = stablehlo.select %1, %arg1, %2 : tensor<8x128x128xi1>, tensor<8x128x128xf32>
    return %3 : tensor<8x128x128xf32>
  }
}
