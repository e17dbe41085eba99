// What later versions brought, a function each; its name ends in the version.
func.func @small_floats_0_10(%x: tensor<2xf8E4M3FNUZ>, %y: tensor<f8E5M2FNUZ>) {
  return
}

func.func @small_float_0_11(%x: tensor<2xf8E4M3B11FNUZ>) {
  return
}

func.func @collective_broadcast_0_16(%x: tensor<4xf32>) {
  %0 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

func.func @promotion_0_17(%x: tensor<4xf32>, %s: tensor<f32>) {
  %0 = "stablehlo.reduce"(%x, %s) ({
  ^bb0(%l: tensor<f64>, %r: tensor<f64>):
    %m = stablehlo.add %l, %r : tensor<f64>
    stablehlo.return %m : tensor<f64>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f64>
  return
}

func.func @per_axis_0_18(%x: tensor<2x!quant.uniform<i8<-100:100>:f32:0, {5.000000e-01,2.500000e-01:3}>>) {
  return
}

func.func @composite_0_19(%x: tensor<4xf32>) {
  %0 = stablehlo.composite "my.op" %x {composite_attributes = {k = 3 : i32, w = [1.5, "t"]}, decomposition = @decomposed, version = 2 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

func.func private @decomposed(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

func.func @batching_1_1(%x: tensor<3x4xf32>, %p: tensor<3x2x1xi32>) {
  %0 = "stablehlo.gather"(%x, %p) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>} : (tensor<3x4xf32>, tensor<3x2x1xi32>) -> tensor<3x2xf32>
  return
}

func.func @two_bits_1_2(%x: tensor<4xi2>, %y: tensor<4xui2>) {
  return
}

func.func @options_1_3(%x: tensor<4xf32>) {
  %0 = stablehlo.custom_call @target(%x) {api_version = 4 : i32, backend_config = {size = 3 : i64}} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

func.func @tan_1_4(%x: tensor<4xf32>) {
  %0 = stablehlo.tan %x : tensor<4xf32>
  return
}

func.func @several_1_5(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  %0:2 = "stablehlo.all_gather"(%x, %y) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>, tensor<2xf32>) -> (tensor<8xf32>, tensor<4xf32>)
  return
}

func.func @algorithm_1_6(%x: tensor<4x4xf32>) {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

func.func @small_floats_1_7(%x: tensor<2xf8E4M3>, %y: tensor<f8E3M4>) {
  return
}

func.func @smaller_floats_1_8(%x: tensor<2xf4E2M1FN>, %y: tensor<f6E2M3FN>, %z: tensor<f6E3M2FN>, %w: tensor<f8E8M0FNU>) {
  return
}

func.func @accuracy_1_9(%x: tensor<4xf32>) {
  %0 = stablehlo.exponential %x {result_accuracy = #stablehlo.result_accuracy<atol = 1.000000e-05, ulps = 3, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4xf32>
  return
}

func.func @accuracy_1_10(%x: tensor<4xf32>) {
  %0 = stablehlo.tanh %x {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<4xf32>
  return
}

func.func @pairs_1_12(%x: tensor<4xf32>, %t: !stablehlo.token) {
  %0 = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  return
}

func.func @buffer_1_13(%x: memref<2x?xf32>) {
  return
}

func.func @regions_1_14(%x: tensor<4xf32>) {
  %0 = stablehlo.composite "my.op" %x ({
  ^bb0(%a: tensor<4xf32>):
    stablehlo.return %a : tensor<4xf32>
  }) {decomposition = @decomposed} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

func.func @future_1_15(%x: tensor<4xf32>) {
  %0 = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %r = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<8xf32>
    stablehlo.return %r : tensor<8xf32>
  }) : (tensor<4xf32>) -> !stablehlo.future<tensor<8xf32>>
  %1 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<8xf32>>) -> tensor<8xf32>
  return
}

func.func private @mesh()

func.func @mesh_axes_1_16(%x: tensor<4xf32>) {
  %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x", sub_axis_info = (1)2>, #stablehlo.axis_ref<name = "y">]>} : (tensor<4xf32>) -> tensor<16xf32>
  return
}

func.func @tilings_1_18(%x: tensor<16x128xf32>) {
  %0 = "stablehlo.custom_call"(%x) {call_target_name = "target", operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], result_tilings = [[dense<[8, 128]> : tensor<2xindex>]]} : (tensor<16x128xf32>) -> tensor<16x128xf32>
  return
}

func.func @root_1_20(%x: tensor<4xf32>, %i: tensor<1xi32>) {
  %0 = "stablehlo.collective_broadcast"(%x, %i) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, has_dynamic_root} : (tensor<4xf32>, tensor<1xi32>) -> tensor<4xf32>
  return
}

func.func @reduce_1_20(%x: tensor<4xf32>) {
  %0 = "stablehlo.collective_reduce"(%x) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
