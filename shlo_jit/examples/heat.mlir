// The heat equation: 200 steps of a five-point stencil in a while loop.
//
// Lowered by JAX 0.10.2 from
//
//     def heat(u):
//         def step(_, u):
//             inner = u[1:-1, 1:-1]
//             around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
//             return jnp.pad(inner + 0.2 * (around - 4 * inner), 1)
//         return lax.fori_loop(0, 200, step, u)

module @jit_heat attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<256x256xf32>) -> (tensor<256x256xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0) : tensor<i32>, tensor<256x256xf32>
    cond {
      %c_1 = stablehlo.constant dense<200> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = func.call @closed_call(%iterArg_0) : (tensor<256x256xf32>) -> tensor<256x256xf32>
      %c_1 = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %iterArg, %c_1 : tensor<i32>
      stablehlo.return %2, %1 : tensor<i32>, tensor<256x256xf32>
    }
    return %0#1 : tensor<256x256xf32>
  }
  func.func private @closed_call(%arg0: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %0 = stablehlo.slice %arg0 [1:255, 1:255] : (tensor<256x256xf32>) -> tensor<254x254xf32>
    %1 = stablehlo.slice %arg0 [2:256, 1:255] : (tensor<256x256xf32>) -> tensor<254x254xf32>
    %2 = stablehlo.slice %arg0 [0:254, 1:255] : (tensor<256x256xf32>) -> tensor<254x254xf32>
    %3 = stablehlo.add %1, %2 : tensor<254x254xf32>
    %4 = stablehlo.slice %arg0 [1:255, 2:256] : (tensor<256x256xf32>) -> tensor<254x254xf32>
    %5 = stablehlo.add %3, %4 : tensor<254x254xf32>
    %6 = stablehlo.slice %arg0 [1:255, 0:254] : (tensor<256x256xf32>) -> tensor<254x254xf32>
    %7 = stablehlo.add %5, %6 : tensor<254x254xf32>
    %cst = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<254x254xf32>
    %9 = stablehlo.multiply %8, %0 : tensor<254x254xf32>
    %10 = stablehlo.subtract %7, %9 : tensor<254x254xf32>
    %cst_0 = stablehlo.constant dense<2.000000e-01> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<254x254xf32>
    %12 = stablehlo.multiply %11, %10 : tensor<254x254xf32>
    %13 = stablehlo.add %0, %12 : tensor<254x254xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %14 = call @_pad(%13, %c) : (tensor<254x254xf32>, tensor<i32>) -> tensor<256x256xf32>
    return %14 : tensor<256x256xf32>
  }
  func.func private @_pad(%arg0: tensor<254x254xf32>, %arg1: tensor<i32>) -> tensor<256x256xf32> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %1 = stablehlo.pad %arg0, %0, low = [1, 1], high = [1, 1], interior = [0, 0] : (tensor<254x254xf32>, tensor<f32>) -> tensor<256x256xf32>
    return %1 : tensor<256x256xf32>
  }
}
