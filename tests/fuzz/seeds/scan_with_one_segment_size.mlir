func.func @main(%a: tensor<5x2xf32>, %b: tensor<2xf32>) {
  %0, %1 = "chlo.scan"(%a, %b) ({
  ^bb0(%x: tensor<2xf32>, %y: tensor<2xf32>):
    stablehlo.return %x, %y : tensor<2xf32>, tensor<2xf32>
  }) {dimension = 0 : i64, operandSegmentSizes = array<i1: true>, resultSegmentSizes = array<i32: 1, 1>}
    : (tensor<5x2xf32>, tensor<2xf32>) -> (tensor<5x2xf32>, tensor<2xf32>)
  func.return
}
