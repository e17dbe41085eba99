// The Mandelbrot set: a while loop that ends when no point is inside any more; no inputs.
//
// Lowered by JAX 0.10.2 from
//
//     def mandelbrot():
//         y, x = (lax.broadcasted_iota(jnp.float32, (256, 384), d) for d in (0, 1))
//         cr, ci = x / 128 - 2, y / 128 - 1
//         def inside(s):
//             i, zr, zi, n = s
//             return (i < 200) & jnp.any(zr * zr + zi * zi < 4)
//         def step(s):
//             i, zr, zi, n = s
//             small = zr * zr + zi * zi < 4
//             zr, zi = jnp.where(small, zr * zr - zi * zi + cr, zr), jnp.where(small, 2 * zr * zi + ci, zi)
//             return i + 1, zr, zi, n + small.astype(jnp.int32)
//         iterations, _, _, n = lax.while_loop(inside, step, (0, cr * 0, ci * 0, jnp.zeros(cr.shape, jnp.int32)))
//         return n, iterations

module @jit_mandelbrot attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main() -> (tensor<256x384xi32> {jax.result_info = "result[0]"}, tensor<i32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.iota dim = 0 : tensor<256x384xf32>
    %1 = stablehlo.iota dim = 1 : tensor<256x384xf32>
    %cst = stablehlo.constant dense<1.280000e+02> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
    %3 = stablehlo.divide %1, %2 : tensor<256x384xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
    %5 = stablehlo.subtract %3, %4 : tensor<256x384xf32>
    %cst_1 = stablehlo.constant dense<1.280000e+02> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
    %7 = stablehlo.divide %0, %6 : tensor<256x384xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
    %9 = stablehlo.subtract %7, %8 : tensor<256x384xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
    %11 = stablehlo.multiply %5, %10 : tensor<256x384xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
    %13 = stablehlo.multiply %9, %12 : tensor<256x384xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %14 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<256x384xi32>
    %c_5 = stablehlo.constant dense<0> : tensor<i32>
    %15:6 = stablehlo.while(%iterArg = %5, %iterArg_6 = %9, %iterArg_7 = %c_5, %iterArg_8 = %11, %iterArg_9 = %13, %iterArg_10 = %14) : tensor<256x384xf32>, tensor<256x384xf32>, tensor<i32>, tensor<256x384xf32>, tensor<256x384xf32>, tensor<256x384xi32>
    cond {
      %c_11 = stablehlo.constant dense<200> : tensor<i32>
      %16 = stablehlo.compare LT, %iterArg_7, %c_11, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %17 = stablehlo.multiply %iterArg_8, %iterArg_8 : tensor<256x384xf32>
      %18 = stablehlo.multiply %iterArg_9, %iterArg_9 : tensor<256x384xf32>
      %19 = stablehlo.add %17, %18 : tensor<256x384xf32>
      %cst_12 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
      %20 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
      %21 = stablehlo.compare LT, %19, %20, FLOAT : (tensor<256x384xf32>, tensor<256x384xf32>) -> tensor<256x384xi1>
      %c_13 = stablehlo.constant dense<false> : tensor<i1>
      %22 = stablehlo.reduce(%21 init: %c_13) applies stablehlo.or across dimensions = [0, 1] : (tensor<256x384xi1>, tensor<i1>) -> tensor<i1>
      %c_14 = stablehlo.constant dense<false> : tensor<i1>
      %23 = stablehlo.broadcast_in_dim %c_14, dims = [] : (tensor<i1>) -> tensor<i1>
      %24 = stablehlo.compare NE, %16, %23, UNSIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %25 = stablehlo.convert %24 : tensor<i1>
      %26 = stablehlo.and %25, %22 : tensor<i1>
      stablehlo.return %26 : tensor<i1>
    } do {
      %16 = stablehlo.multiply %iterArg_8, %iterArg_8 : tensor<256x384xf32>
      %17 = stablehlo.multiply %iterArg_9, %iterArg_9 : tensor<256x384xf32>
      %18 = stablehlo.add %16, %17 : tensor<256x384xf32>
      %cst_11 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
      %19 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
      %20 = stablehlo.compare LT, %18, %19, FLOAT : (tensor<256x384xf32>, tensor<256x384xf32>) -> tensor<256x384xi1>
      %21 = stablehlo.multiply %iterArg_8, %iterArg_8 : tensor<256x384xf32>
      %22 = stablehlo.multiply %iterArg_9, %iterArg_9 : tensor<256x384xf32>
      %23 = stablehlo.subtract %21, %22 : tensor<256x384xf32>
      %24 = stablehlo.add %23, %iterArg : tensor<256x384xf32>
      %25 = func.call @_where(%20, %24, %iterArg_8) : (tensor<256x384xi1>, tensor<256x384xf32>, tensor<256x384xf32>) -> tensor<256x384xf32>
      %cst_12 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %26 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<256x384xf32>
      %27 = stablehlo.multiply %26, %iterArg_8 : tensor<256x384xf32>
      %28 = stablehlo.multiply %27, %iterArg_9 : tensor<256x384xf32>
      %29 = stablehlo.add %28, %iterArg_6 : tensor<256x384xf32>
      %30 = func.call @_where(%20, %29, %iterArg_9) : (tensor<256x384xi1>, tensor<256x384xf32>, tensor<256x384xf32>) -> tensor<256x384xf32>
      %c_13 = stablehlo.constant dense<1> : tensor<i32>
      %31 = stablehlo.add %iterArg_7, %c_13 : tensor<i32>
      %32 = stablehlo.convert %20 : (tensor<256x384xi1>) -> tensor<256x384xi32>
      %33 = stablehlo.add %iterArg_10, %32 : tensor<256x384xi32>
      stablehlo.return %iterArg, %iterArg_6, %31, %25, %30, %33 : tensor<256x384xf32>, tensor<256x384xf32>, tensor<i32>, tensor<256x384xf32>, tensor<256x384xf32>, tensor<256x384xi32>
    }
    return %15#5, %15#2 : tensor<256x384xi32>, tensor<i32>
  }
  func.func private @_where(%arg0: tensor<256x384xi1>, %arg1: tensor<256x384xf32>, %arg2: tensor<256x384xf32>) -> tensor<256x384xf32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<256x384xi1>, tensor<256x384xf32>
    return %0 : tensor<256x384xf32>
  }
}
